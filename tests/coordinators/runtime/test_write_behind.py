"""Rows that are applied at once and written later: what is read, what a crash leaves, what cannot be written."""

import random
from collections.abc import Iterable

import pytest

from duramen.base.errors import StateDamaged
from duramen.coordinators.runtime.write_behind import WriteBehind
from duramen.sim.machine.clock import ManualWorker
from duramen.sim.machine.views import MemoryViewStore

KEYS = [b"k%d" % number for number in range(8)]


class Failing(MemoryViewStore):
    """Raises `error` at each write, if there is one."""

    error: Exception | None = None

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        if self.error is not None:
            raise self.error
        super().write(puts, deletes)


class Rows:
    def __init__(self) -> None:
        self.store = Failing()
        self.worker = ManualWorker()
        self.damaged: list[StateDamaged] = []
        self.behind = WriteBehind(self.store, self.worker, self.damaged.append)
        self.flushed = 0

    def flush(self) -> None:
        def done() -> None:
            self.flushed += 1

        self.behind.flush(done)


@pytest.mark.parametrize("seed", range(10))
def test_what_was_put_is_read_at_once_and_a_crash_leaves_a_beginning_of_it(seed: int) -> None:
    draw, rows, model = random.Random(seed), Rows(), dict[bytes, bytes]()
    states = [dict(model)]
    flushed = 0
    for _ in range(100):
        changes = {draw.choice(KEYS): draw.choice((None, b"%d" % draw.randrange(99))) for _ in range(3)}
        rows.behind.put(changes)
        for key, value in changes.items():
            model.pop(key, None)
            if value is not None:
                model[key] = value
        states.append(dict(model))
        if draw.random() < 0.5:
            rows.worker.step("rows")
        if draw.random() < 0.1:
            rows.flush()
            rows.worker.settle()
            flushed = len(states) - 1
        assert {key: rows.behind.get(key) for key in KEYS} == {key: model.get(key) for key in KEYS}
        first, end = sorted(draw.sample(KEYS, 2))
        expected = sorted((key, value) for key, value in model.items() if first <= key < end)
        assert list(rows.behind.scan(first, end)) == expected
    rows.store.crash(draw)
    assert dict(rows.store.scan(b"", b"z")) in states[flushed:]


def test_what_cannot_be_written_is_read_and_written_with_what_comes_next() -> None:
    rows = Rows()
    rows.store.error = OSError("no room")
    rows.behind.put({b"a": b"1", b"b": b"1"})
    rows.flush()
    rows.worker.settle()
    assert rows.flushed == 1
    assert (rows.behind.get(b"a"), rows.store.get(b"a"), rows.damaged) == (b"1", None, [])
    rows.store.error = None
    rows.behind.put({b"b": b"2"})
    rows.worker.settle()
    assert dict(rows.store.scan(b"", b"z")) == {b"a": b"1", b"b": b"2"}


def test_a_damaged_store_is_told_and_nothing_more_is_written_to_it() -> None:
    rows = Rows()
    rows.store.error = StateDamaged("damaged")
    rows.behind.put({b"a": b"1"})
    rows.worker.settle()
    assert [str(error) for error in rows.damaged] == ["damaged"]
    rows.behind.end()
    rows.store.error = None
    rows.behind.put({b"b": b"2"})
    rows.flush()
    rows.worker.settle()
    assert rows.flushed == 1
    assert not list(rows.store.scan(b"", b"z"))
