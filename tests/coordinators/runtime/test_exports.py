"""Exports: rows as they were at one moment, until nobody reads them any more."""

from typing import Any

import pytest

from duramen.base.errors import ExportExpired, StorageFailed
from duramen.coordinators.runtime.exports import EXPORT_MS
from duramen.queues.exporting import runs_page
from duramen.queues.machine import Enqueue
from duramen.queues.operations import NewEntry
from duramen.queues.runs import Run
from duramen.service.exports import open_export, read_export
from duramen.sim.broker import CallbackResult, ManualBroker

SPACE = "mail"


class Node:
    """A node with a queue space of two shards."""

    def __init__(self) -> None:
        self.hand = ManualBroker()
        self.hand.create(SPACE, 2, kind="queues")

    @property
    def space(self) -> Any:
        return self.hand.broker.streams.get(SPACE)

    def put(self, shard: int, *values: bytes) -> None:
        answer: CallbackResult[Any] = CallbackResult()
        entries = [(b"q", NewEntry(value)) for value in values]
        self.hand.broker.coordinators.submit(SPACE, shard, Enqueue(entries), answer)
        self.hand.settle()
        assert answer.error is None

    def open(self) -> str:
        answer: CallbackResult[str] = CallbackResult()
        open_export(self.hand.broker, self.space, answer)
        self.hand.settle()
        return answer.value

    def entries(self, export: str, shard: int = 0) -> int:
        answer: CallbackResult[int] = CallbackResult()

        def count(rows: Any) -> int:
            page = runs_page(rows, b"", b"", b"", 1 << 20)
            assert page.names in ([], [b"q"])
            return sum(len(Run(run).offsets) for run in page.runs)

        read_export(self.hand.broker, self.space, shard, export, count, answer)
        self.hand.settle()
        return answer.value


def test_an_export_has_what_was_there_when_it_was_opened() -> None:
    node = Node()
    node.put(0, b"a", b"b")
    first = node.open()
    node.put(0, b"c")
    second = node.open()
    node.put(1, b"d")
    assert (node.entries(first), node.entries(second), node.entries(second, 1)) == (2, 3, 0)
    for rows in range(3):  # checkpoints come and go beside it
        node.hand.broker.coordinators.states.checkpoints.make()
        node.put(0, b"%d" % rows)
    assert (node.entries(first), node.entries(second)) == (2, 3)
    position = node.hand.broker.exports.position(first, node.space.partition(0).log)
    assert position.offset == 2


def test_one_that_nobody_reads_expires_and_none_outlives_a_restart() -> None:
    node = Node()
    node.put(0, b"a")
    export = node.open()
    node.hand.advance(EXPORT_MS - 1)
    assert node.entries(export) == 1
    node.hand.advance(EXPORT_MS - 1)
    assert node.entries(export) == 1
    assert [name for name in node.hand.rows.checkpoints() if not name.isdigit()] == [export]
    node.hand.advance(EXPORT_MS + 1)
    with pytest.raises(ExportExpired):
        node.entries(export)
    assert [name for name in node.hand.rows.checkpoints() if not name.isdigit()] == []
    export = node.open()
    node.hand.crash()
    with pytest.raises(ExportExpired):
        node.entries(export)
    assert node.open() != export
    assert node.entries(node.open()) == 1
    assert export not in node.hand.rows.checkpoints()


def test_without_a_change_an_export_is_opened_once_and_too_many_are_not_kept() -> None:
    node = Node()
    node.put(0, b"a")
    first = node.open()
    assert node.open() == first
    others = list[str]()
    for number in range(32):
        node.put(0, b"%d" % number)
        others.append(node.open())
    assert len({first, *others}) == 33
    with pytest.raises(ExportExpired):
        node.entries(first)
    assert node.entries(others[0]) == 2


def test_rows_are_never_restored_from_an_export(monkeypatch: pytest.MonkeyPatch) -> None:
    node, restored = Node(), list[str]()
    node.put(0, b"a")
    export = node.open()
    node.put(0, b"b")
    node.hand.broker.coordinators.states.checkpoints.make()
    node.hand.settle()
    (kept,) = [name for name in node.hand.rows.checkpoints() if name != export]
    restore = node.hand.rows.restore

    def noted(name: str) -> None:
        restored.append(name)
        restore(name)

    monkeypatch.setattr(node.hand.rows, "restore", noted)
    node.hand.rows.damage(checkpoints=0)
    node.hand.broker.coordinators.states.restore(StorageFailed("damaged"), lambda: None)
    node.hand.settle()
    assert restored == [kept]
    assert node.entries(node.open()) == 2
