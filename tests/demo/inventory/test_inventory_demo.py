"""The whole demo of the inventory with fewer topics, as a process of its own: its end, and what it leaves behind."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.demo.started import Started

from duramen.demo.inventory.names import demo_namespaces, demo_topics


@pytest.mark.long
def test_everything_is_there(demo_inventory: Callable[..., Started], tmp_path: Path) -> None:
    started = demo_inventory("--topics", "30000")
    code, said, complained = started.end()
    assert (code, complained) == (0, "")
    assert "checked: 30,000 topics" in said
    assert "records of 300 topics" in said
    assert started.left_behind() == []
    assert (tmp_path / "demo" / "inventory.png").read_bytes().startswith(b"\x89PNG")
    assert "30,000 topics" in (tmp_path / "demo" / "inventory.html").read_text()


def test_kafka_could_carry_each_name() -> None:
    namespaces = demo_namespaces(100_000_000)
    assert len({one.path for one in namespaces}) == len(namespaces) == 10_000
    topics = demo_topics(namespaces[-1])
    assert len(set(topics)) == 10_000
    legal = set("abcdefghijklmnopqrstuvwxyz0123456789.-")
    assert all(set(f"{namespaces[-1].path.replace('/', '.')}.{topic}") <= legal for topic in topics)
