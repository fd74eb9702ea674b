"""Totals of a shard: the row says what counting anew says, whatever happens and in whatever steps it is applied."""

import random

import pytest
from tests.queues.test_owners import HASH, NAMES, Shard

from duramen.base.ids import Position
from duramen.codec.batch import BatchInput
from duramen.queues.answers import entry_size
from duramen.queues.operations import (
    NewEntry,
    ack_record,
    delete_record,
    due_record,
    edit_record,
    entry_record,
    queue_record,
    replace_record,
    trim_record,
)
from duramen.queues.reading import entries_from
from duramen.queues.rows import state_of
from duramen.queues.totals import NOTHING, TOTALS_KEY, ShardTotals, totals_of

ENTRIES = (
    NewEntry(b"v"), NewEntry(None), NewEntry(b"", b"key"), NewEntry(b"v" * 9, b"", ((b"a", None), (b"bc", b"d"))),
    NewEntry(b"later", delay_ms=7), NewEntry(b"soon gone", b"k", ttl_ms=9),
    NewEntry(b"x", None, ((b"h", b""),), 3, 1, 2),
)  # fmt: skip
STEPS = (
    "entries", "entries", "batch", "trim", "purge", "drop", "edit", "edit", "delete", "ack", "ack", "replace", "due",
    "older", "apply", "apply",
)  # fmt: skip


def counted(shard: Shard) -> ShardTotals:
    found = NOTHING
    for name in NAMES:
        for entry in entries_from(shard.rows, HASH(name), state_of(shard.rows, HASH(name)), 0):
            found = found.plus(1, entry_size(entry))
    return found


def append(shard: Shard, do: str, chance: random.Random) -> None:
    name, size = chance.choice(NAMES), chance.randrange(50)
    entries = list(entries_from(shard.rows, HASH(name), state_of(shard.rows, HASH(name)), 0))
    offset = chance.choice(entries).position.offset if entries and size else chance.randrange(1 + shard.end)
    at = Position(0, offset)
    match do:
        case "entries":
            shard.append(*(entry_record(name, chance.choice(ENTRIES), time_ms) for time_ms in range(1 + size % 9)))
        case "batch":
            shard.append(*(BatchInput(0, chance.choice(NAMES), bytes(size)) for _ in range(1 + size % 30)))
        case "trim":
            shard.append(trim_record(name, at, 5))
        case "purge" | "drop":
            shard.append(queue_record(name, "purge" if do == "purge" else "drop", 5))
        case "edit":
            shard.append(edit_record(name, at, bytes(size) if size else None, 5))
        case "delete":
            shard.append(delete_record(name, at, 5))
        case "ack":
            shard.append(*(ack_record(name, Position(0, offset + more), 5) for more in range(1 + size % 3)))
        case "replace":
            shard.append(replace_record(name, at, "", "", 5), entry_record(name, chance.choice(ENTRIES), 5))
        case _:
            shard.append(due_record(0, size, 5))


@pytest.mark.parametrize("seed", range(20))
def test_totals_are_what_counting_anew_finds(seed: int) -> None:
    chance, shard, other, every = random.Random(seed), Shard(), Shard(), list[bytes]()
    for do in (*(chance.choice(STEPS) for _ in range(80)), "batch", "apply"):
        if do == "older":
            shard.rows.write([], [TOTALS_KEY])
        elif do != "apply":
            append(shard, do, chance)
        elif shard.log:
            every += shard.log
            shard.apply(1 + seed % 4)
            assert totals_of(shard.rows) == counted(shard)
    other.log = every
    other.apply(7)
    assert totals_of(other.rows) == counted(shard)


def test_rows_that_a_node_of_an_older_version_wrote_are_counted_again() -> None:
    shard = Shard()
    shard.append(BatchInput(0, b"alice", b"one"))
    shard.apply()
    stale = shard.rows.get(TOTALS_KEY)
    assert stale is not None
    shard.append(BatchInput(0, b"alice", b"two"))
    shard.apply()
    shard.rows.write([(TOTALS_KEY, stale)], [])
    assert totals_of(shard.rows) is None
    shard.append(BatchInput(0, b"bob", b"three"))
    shard.apply()
    assert totals_of(shard.rows) == ShardTotals(3, 3 * 64 + 11)
