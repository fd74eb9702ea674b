"""Owners of queues: the rows say what counting anew says, whatever happens and in whatever steps it is applied."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from duramen.base.ids import Position
from duramen.codec.batch import BatchInput, encode, header
from duramen.codec.queue_entries import OWNER_HEADER
from duramen.queues.changes import changes
from duramen.queues.names import hash_by
from duramen.queues.operations import (
    ack_record,
    delete_record,
    edit_record,
    own_record,
    queue_record,
    replace_record,
    trim_record,
)
from duramen.queues.owned_sweep import OwnedKept, OwnedSweep
from duramen.queues.owners import (
    NO_OWNER,
    NOT_SAID,
    OwnedQueue,
    OwnRetention,
    aged_queues,
    owned_bytes,
    owned_queue,
    owned_queues,
    owners,
)
from duramen.queues.reading import entries_from
from duramen.queues.retention import Retention
from duramen.queues.rows import queue_end, state_of
from duramen.queues.runs import Run
from duramen.sim.machine.views import MemoryViewStore

HASH = hash_by(b"a space")
NAMES = (b"alice", b"bob", b"carl")
OWNERS = (1, 2, 300)
OWNS = (OwnRetention(), OwnRetention(5), OwnRetention(-1, 100), OwnRetention(bytes=70))


class Shard:
    """A log, and the rows that it comes to."""

    def __init__(self) -> None:
        self.rows = MemoryViewStore()
        self.log: list[bytes] = []
        self.end = 0
        self.written: set[bytes] = set()

    def append(self, *found: BatchInput) -> None:
        batch = bytes(encode(found, base_offset=self.end, leader_epoch=0))
        self.log.append(batch)
        self.end = header(batch).next_offset

    def apply(self, at_once: int = 1) -> None:
        for some in pieces(self.log, at_once):
            found = changes(some, header(some[0]).base_offset, self.rows, HASH)
            self.rows.write(
                [(key, value) for key, value in found.items() if value is not None],
                [key for key, value in found.items() if value is None],
            )
            self.written |= found.keys()
        self.log = []


def pieces(found: list[bytes], size: int) -> list[list[bytes]]:
    return [found[at : at + size] for at in range(0, len(found), size)]


def entry(name: bytes, value: bytes, time_ms: int, owner: int = 0) -> BatchInput:
    headers = ((OWNER_HEADER, b"%d" % owner),) if owner else ()
    return BatchInput(time_ms, name, value, headers)


def check(shard: Shard) -> None:
    """Everything is as counted anew."""
    rows, totals, aged = shard.rows, dict[int, int](), set[tuple[int, int, bytes]]()
    for name in NAMES:
        queue = HASH(name)
        owned = owned_queue(rows, queue)
        if owned is None:
            continue
        runs = list(rows.scan(b"r" + queue, queue_end(b"r", queue)))
        size = sum(len(value) for _, value in (*runs, *rows.scan(b"o" + queue, queue_end(b"o", queue))))
        first = next(entries_from(rows, queue, state_of(rows, queue), 0), None)
        first_ms = -1 if first is None else max(0, first.timestamp)
        assert owned[:4] == (owned.owner, size, sum(len(Run(value).offsets) for _, value in runs), first_ms)
        totals[owned.owner] = totals.get(owned.owner, 0) + size
        if first_ms >= 0 and owned.own.ms == NOT_SAID:
            aged.add((owned.owner, first_ms, queue))
        elif first_ms >= 0 and owned.own.ms >= 0:
            aged.add((NO_OWNER, first_ms + owned.own.ms, queue))
    assert {owner: size for owner, size in totals.items() if size} == dict(owners(rows, NO_OWNER))
    assert aged == {(owner, *one) for owner in (NO_OWNER, *OWNERS) for one in aged_queues(rows, owner)}


STEPS = st.tuples(
    st.sampled_from((
        "entries", "entries", "entries", "own", "said", "trim", "purge", "drop", "edit", "delete", "ack", "replace",
        "apply", "apply",
    )),
    st.integers(0, 2), st.integers(0, 1000), st.integers(0, 100),
)  # fmt: skip


@settings(max_examples=examples(60))
@given(st.lists(STEPS, max_size=40), st.integers(1, 4))
def test_rows_of_owners_are_what_counting_anew_finds(steps: list[Any], at_once: int) -> None:
    shard, other = Shard(), Shard()
    every = list[bytes]()
    for do, place, number, size in steps:
        name = NAMES[place]
        at = Position(0, number % max(1, shard.end))
        match do:
            case "entries":
                some = [entry(name, bytes(size), number + one) for one in range(1 + size % 3)]
                some[0] = entry(name, bytes(size), number, OWNERS[number % 3] if number % 4 else 0)
                shard.append(*some)
            case "own":
                shard.append(own_record(name, OWNERS[number % 3], None, 5))
            case "said":
                shard.append(own_record(name, OWNERS[number % 3], OWNS[size % 4], 5))
            case "trim":
                shard.append(trim_record(name, at, 5))
            case "purge" | "drop":
                shard.append(queue_record(name, "purge" if do == "purge" else "drop", 5))
            case "edit":
                shard.append(edit_record(name, at, bytes(size), 5))
            case "delete":
                shard.append(delete_record(name, at, 5))
            case "ack":
                shard.append(ack_record(name, at, 5))
            case "replace":
                shard.append(replace_record(name, at, "", "", 5), entry(name, bytes(size), number))
            case _:
                every += shard.log
                shard.apply(at_once)
                check(shard)
    every += shard.log
    shard.apply(at_once)
    check(shard)
    other.log = every
    other.apply(7)
    check(other)


def test_queues_without_owners_cost_no_rows() -> None:
    shard = Shard()
    shard.append(entry(b"alice", b"x", 5), own_record(b"bob", 1, None, 5))
    shard.apply()
    assert {key[:1] for key in shard.written} <= {b"n", b"r", b"e", b"p", b"u"}


def test_an_owner_that_is_said_late_gets_what_is_there_already() -> None:
    shard = Shard()
    shard.append(*(entry(b"alice", bytes(100), number) for number in range(10)))
    shard.apply()
    shard.append(entry(b"alice", b"", 50, owner=2))
    shard.apply()
    check(shard)
    assert owned_bytes(shard.rows, 2) > 1000
    assert owned_queue(shard.rows, HASH(b"alice")) == OwnedQueue(2, owned_bytes(shard.rows, 2), 11, 0)


def kept(version: int = 0, counts: bool = False, **said: Retention) -> OwnedKept:
    return OwnedKept(version, lambda owner: said.get(f"of_{owner}", Retention()), counts)


def step(shard: Shard, sweep: OwnedSweep, said: OwnedKept, now_ms: int) -> set[bytes]:
    sweep.written(shard.written)
    shard.written = set()
    return {queue.name for queue, _ in sweep.step(shard.rows, said, now_ms)}


def test_a_sweep_names_what_is_due_and_nothing_else() -> None:
    shard, sweep = Shard(), OwnedSweep()
    shard.append(entry(b"alice", b"x", 10, owner=1))
    shard.append(entry(b"bob", b"x", 20, owner=1))
    shard.append(entry(b"carl", b"x", 0, owner=2))
    shard.apply()
    assert step(shard, sweep, kept(), 1_000) == set()
    assert step(shard, sweep, kept(1, of_1=Retention(100)), 109) == set()
    assert step(shard, sweep, kept(1, of_1=Retention(100)), 110) == {b"alice"}
    shard.append(trim_record(b"alice", Position(0, 1), 110))
    shard.apply()
    assert step(shard, sweep, kept(1, of_1=Retention(100)), 119) == set()
    assert step(shard, sweep, kept(1, of_1=Retention(100)), 120) == {b"bob"}
    assert step(shard, sweep, kept(2, of_2=Retention(7)), 120) == {b"carl"}
    shard.append(own_record(b"bob", 1, OwnRetention(200), 5))
    shard.apply()
    assert step(shard, sweep, kept(3), 219) == set()
    assert step(shard, sweep, kept(3), 220) == {b"bob"}


def test_a_sweep_looks_at_bounds_of_bytes_once_something_was_written() -> None:
    shard, sweep, said = Shard(), OwnedSweep(), kept(1, counts=True, of_1=Retention(bytes=300))
    shard.append(entry(b"alice", bytes(200), 10, owner=1))
    shard.append(entry(b"bob", bytes(200), 10, owner=2))
    shard.apply()
    assert step(shard, sweep, said, 1_000) == set()
    for number in range(2):
        shard.append(entry(b"alice", bytes(200), number), entry(b"bob", bytes(200), number))
    shard.apply()
    assert step(shard, sweep, said, 1_000) == {b"alice"}
    assert step(shard, sweep, said, 1_000) == set()
    assert step(shard, sweep, kept(2, counts=True, of_2=Retention(entries=1)), 1_000) == {b"bob"}
    assert step(shard, OwnedSweep(), said, 1_000) == {b"alice"}  # after a start
    assert [queue for queue, _ in owned_queues(shard.rows, b"")] == sorted(map(HASH, (b"alice", b"bob")))
