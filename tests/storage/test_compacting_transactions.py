"""Compaction of logs with transactions: readers of what is committed end with the same state before and after."""

import random

import pytest

from duramen.codec.batch import CONTROL, TRANSACTIONAL, BatchInput, batches, encode, header, records
from duramen.codec.markers import encode_marker
from duramen.sim.machine.store import StoreOnDoubles
from duramen.storage.log.log import Log
from duramen.storage.segment.reader import Blocked
from tests.storage.maintenance.test_compaction import COMPACT, ROUNDS, compact

PRODUCERS = 4
KEYS = 6


class Mix:
    """Transactions of several producers and plain writes of few keys, at random."""

    def __init__(self, seed: int) -> None:
        self.doubles = StoreOnDoubles()
        self.log = self.doubles.log(config=COMPACT)
        self._chance = random.Random(seed)
        self._sequences = dict.fromkeys(range(PRODUCERS), 0)
        self._number = 0

    def append(self, batch: bytearray) -> None:
        self.doubles.store.append(self.log, batch, header(batch), self.doubles.store.node_epoch, None)
        self.doubles.clock.advance(10)

    def write(self, producer: int) -> None:
        """One or two records; producer -1 writes outside of transactions."""
        chance, rows = self._chance, []
        for _ in range(chance.randrange(1, 3)):
            self._number += 1
            value = None if chance.random() < 0.1 else b"%d:" % self._number + bytes(150)
            rows.append(BatchInput(self.doubles.clock.wall_ms(), b"key-%d" % chance.randrange(KEYS), value))
        if producer < 0:
            self.append(encode(rows))
            return
        self.append(
            encode(
                rows, attributes=TRANSACTIONAL, producer_id=producer, producer_epoch=0,
                base_sequence=self._sequences[producer],
            )
        )  # fmt: skip
        self._sequences[producer] += len(rows)

    def end(self, producer: int, *, commit: bool) -> None:
        now_ms = self.doubles.clock.wall_ms()
        self.append(encode_marker(producer, 0, commit=commit, coordinator_epoch=0, now_ms=now_ms))

    def fill(self, count: int) -> None:
        chance = self._chance
        for _ in range(count):
            step = chance.random()
            if step < 0.3:
                self.write(-1)
            elif step < 0.8:
                self.write(chance.randrange(PRODUCERS))
            else:
                self.end(chance.randrange(PRODUCERS), commit=chance.random() < 0.5)
        self.doubles.settle()
        self.doubles.advance(61_000)


def committed_state(doubles: StoreOnDoubles, log: Log) -> dict[bytes, tuple[int, bytes]]:
    """What a reader of committed records ends with, who is told what was aborted."""
    found: dict[bytes, tuple[int, bytes]] = {}
    at = log.start_offset
    while at < log.last_stable_offset:
        plan = log.plan_read(at, 4000, committed=True)
        if isinstance(plan, Blocked):
            doubles.store.unblock(plan, lambda _: None)
            doubles.settle()
            continue
        assert plan is not None
        data = doubles.bytes_of(plan)
        end = [head.next_offset for _, head in batches(data)][-1]
        ahead = sorted(log.transactions.aborted_within(at, end), key=lambda one: one.first_offset, reverse=True)
        aborting: set[int] = set()
        for position, head in batches(data):
            while ahead and ahead[-1].first_offset <= head.base_offset:
                aborting.add(ahead.pop().producer_id)
            if head.attributes & CONTROL:
                # As Kafka's consumer: of a marker that compaction has emptied it does not know what it ends.
                if any(record.key == b"\0\0\0\0" for record in records(memoryview(data)[position:])):
                    aborting.discard(head.producer_id)
            elif not (head.attributes & TRANSACTIONAL and head.producer_id in aborting):
                for record in records(memoryview(data)[position : position + head.size]):
                    if record.value is None:
                        found.pop(record.key or b"", None)
                    else:
                        found[record.key or b""] = record.offset, record.value
        at = end
    return found


@pytest.mark.parametrize("seed", range(12))
def test_readers_of_what_is_committed_end_with_the_same_state(seed: int) -> None:
    mix = Mix(seed)
    doubles = mix.doubles
    saved_bytes = 0
    for _ in range(3):
        log = mix.log
        mix.fill(80)
        before = committed_state(doubles, log)
        compact(doubles)
        assert log.dirty_offset <= log.last_stable_offset, "what is open, and what lies behind it, is left alone"
        assert committed_state(doubles, log) == before
        for producer in range(PRODUCERS):
            mix.end(producer, commit=producer % 2 == 0)
        mix.fill(0)
        before, size = committed_state(doubles, log), log.size_bytes()
        compact(doubles)
        assert doubles.metrics.counter(ROUNDS).value > 0
        assert log.size_bytes() <= size, "it may all lie in the active segment"
        saved_bytes += size - log.size_bytes()
        assert committed_state(doubles, log) == before
        doubles.crash()
        mix.log = doubles.log(config=COMPACT)
        assert committed_state(doubles, mix.log) == before
    assert saved_bytes


def test_what_a_producer_commits_is_read_after_an_aborted_transaction_of_which_nothing_is_left() -> None:
    mix = Mix(1)
    doubles = mix.doubles
    for number in range(4):
        mix.write(0)
        mix.end(0, commit=number % 2 == 1)
        doubles.settle()
        doubles.advance(1000)
    for _ in range(4):
        for _ in range(40):
            mix.write(-1)
        doubles.settle()
        doubles.advance(61_000)
        compact(doubles)
    mix.write(0)
    mix.end(0, commit=True)
    doubles.settle()
    assert mix.log.transactions.aborted == []
    state = committed_state(doubles, mix.log)
    assert max(offset for offset, _ in state.values()) >= mix.log.end_offset - 3
    doubles.crash()
    mix.log = doubles.log(config=COMPACT)
    assert mix.log.transactions.aborted == []
    assert committed_state(doubles, mix.log) == state
