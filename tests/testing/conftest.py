"""A broker that the tests of the fixture share."""

from collections.abc import Iterator

import pytest

import duramen
from duramen.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with duramen.testing.broker() as broker:
        yield broker


@pytest.fixture
def stream(broker: Broker, stream_name: str) -> Iterator[str]:
    """A stream of one partition; faults end with the test."""
    yield broker.create_stream(stream_name)
    if not broker.running:
        broker.restart()
    broker.faults.clear()
