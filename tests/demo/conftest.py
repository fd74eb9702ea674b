"""Demos that end with their test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.demo.started import Started


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    """Starts demos that end with the test."""
    yield from _starting(tmp_path / "demo", "duramen.demo")


@pytest.fixture
def demo_cluster(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    """The same of the cluster's."""
    yield from _starting(tmp_path / "demo", "duramen.demo.cluster")


@pytest.fixture
def demo_inventory(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    """The same of the inventory's."""
    yield from _starting(tmp_path / "demo", "duramen.demo.inventory")


def _starting(directory: Path, module: str) -> Iterator[Callable[..., Started]]:
    started: list[Started] = []

    def start(*arguments: str, **environment: str) -> Started:
        started.append(Started(directory, arguments, environment, module))
        return started[-1]

    yield start
    for one in started:
        for process in one.processes():
            process.kill()
        one.process.communicate()
