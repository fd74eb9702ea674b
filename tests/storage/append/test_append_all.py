"""Batches of a turn that are appended together: what comes of them is what comes of one after another."""

import errno
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from duramen.base.errors import DuramenError, StorageFailed, StreamNotFound
from duramen.codec.batch import BatchInput, Header, check, encode
from duramen.sim.machine.store import StoreOnDoubles
from duramen.storage.log.log import Log, LogConfig

CONFIGS = (
    LogConfig(segment_bytes=64 << 10),
    LogConfig(segment_bytes=2000, segment_ms=5000),
    LogConfig(segment_bytes=200 << 10, segment_ms=60_000, segment_jitter_ms=1000),
    LogConfig(durability="os"),
    LogConfig(durability="memory"),
)


class Produced:
    """A batch, and what became of it."""

    def __init__(self, batch: bytearray) -> None:
        self.batch = batch
        self.head: Header = check(batch)
        self.base_offset = -1
        self.outcome: tuple[int, type[DuramenError] | None] | None = None

    def done(self, base_offset: int, error: DuramenError | None) -> None:
        """It is acknowledged or refused, once."""
        assert self.outcome is None
        self.outcome = base_offset, None if error is None else type(error)


def append(doubles: StoreOnDoubles, log: Log, produced: list[Produced], *, together: bool) -> None:
    """Append batches of one log, and have them synced."""
    store = doubles.store

    def done(error: DuramenError | None) -> None:
        for one in produced:
            one.done(one.base_offset if error is None else -1, error)

    if together:
        store.append_all(log, produced, store.node_epoch, done)
    else:
        for one in produced:
            store.append(log, one.batch, one.head, store.node_epoch, one.done)
    store.flush()


def drawn(chance: random.Random, now_ms: int, sequences: dict[int, int]) -> Produced:
    """Half are of idempotent producers, whose next sequences are `sequences`; some repeat one, or leave a gap."""
    count = chance.choice((1, 1, 1, 3))
    records = [
        BatchInput(now_ms + chance.choice((0, 0, 1, -9000)), None, chance.randbytes(chance.choice((1, 100, 3000))))
        for _ in range(count)
    ]
    if chance.random() < 0.5:
        return Produced(encode(records))
    id_, odd = chance.choice((7, 8, 9)), chance.random() < 0.05
    sequence = chance.randrange(3) if odd else sequences.get(id_, 0)
    sequences[id_] = sequence + count & 0x7FFFFFFF
    epoch = chance.choice((0, 1)) if odd else 0
    return Produced(encode(records, producer_id=id_, producer_epoch=epoch, base_sequence=sequence))


def run(seed: int, *, together: bool) -> list[object]:
    """All that came of some turns, stops and crashes."""
    chance, doubles = random.Random(seed), StoreOnDoubles()
    found: list[object] = []
    sequences: dict[int, dict[int, int]] = {number: {} for number in range(len(CONFIGS))}
    for _ in range(12):
        number = chance.randrange(len(CONFIGS))
        log = doubles.log(number, CONFIGS[number])
        produced = [drawn(chance, doubles.clock.wall_ms(), sequences[number]) for _ in range(chance.choice((1, 2, 30)))]
        append(doubles, log, produced, together=together)
        if chance.random() < 0.7:
            doubles.settle()
        found.append([(one.outcome, bytes(one.batch)) for one in produced])
        step = chance.random()
        if step < 0.1:
            doubles.store.delete(log)
        elif step < 0.3:
            doubles.advance(chance.choice((10, 2000, 70_000)))
        elif step < 0.4:
            doubles.settle()
            doubles.kill()
        elif step < 0.5:
            doubles.restart()
    doubles.settle()
    for number, config in enumerate(CONFIGS):
        log = doubles.log(number, config)
        found += [log.state(), [(record.offset, record.value) for record in doubles.read(log)]]
    found += [doubles.store.wal_end, sorted(doubles.files.names("wal"))]
    doubles.kill()
    return [*found, [doubles.log(number, config).state() for number, config in enumerate(CONFIGS)]]


@given(st.integers())
@settings(deadline=None, max_examples=examples(30))
def test_it_is_one_after_another(seed: int) -> None:
    assert run(seed, together=True) == run(seed, together=False)


def turn(doubles: StoreOnDoubles, log: Log) -> list[Produced]:
    """Three batches that come together."""
    produced = [Produced(encode([BatchInput(1, None, b"%d" % at)])) for at in range(3)]
    append(doubles, log, produced, together=True)
    return produced


def test_they_are_acknowledged_by_one_sync_and_are_there_after_a_loss_of_power() -> None:
    doubles = StoreOnDoubles()
    first, then = turn(doubles, doubles.log()), turn(doubles, doubles.log())
    assert not any(one.outcome for one in [*first, *then])
    doubles.worker.step("sync")
    assert [one.outcome for one in [*first, *then]] == [(at, None) for at in range(6)]
    lost = turn(doubles, doubles.log())
    doubles.crash()
    assert not any(one.outcome for one in lost)
    assert doubles.values(doubles.log()) == [b"0", b"1", b"2"] * 2


@pytest.mark.parametrize("call", ["sync", "write"])
def test_each_is_told_where_the_disk_fails(call: str) -> None:
    doubles = StoreOnDoubles()
    turn(doubles, doubles.log())
    doubles.settle()

    def fail(made: str, path: str, size: int) -> int:
        if made == call and "wal/" in path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return size

    doubles.files.interfere = fail
    failed = turn(doubles, doubles.log())
    doubles.settle()
    assert [one.outcome for one in failed] == [(-1, StorageFailed)] * 3


def test_each_is_told_that_its_log_is_deleted() -> None:
    doubles = StoreOnDoubles()
    log = doubles.log()
    turn(doubles, log)
    doubles.settle()
    doubles.store.delete(log)
    late = turn(doubles, log)
    doubles.settle()
    assert [one.outcome for one in late] == [(-1, StreamNotFound)] * 3
