"""Retention of queues: what is out of it is gone for every read, at this leader and the next."""

import random
from typing import Any

import pytest
from tests.coordinators.queue.spaces import NAMES, SPACE, Space

from duramen.base.errors import ConfigInvalid, DuramenError, QueueEntryGone
from duramen.base.ids import Position
from duramen.codec.partitioner import partition_of
from duramen.metadata.decisions import Definition
from duramen.queues.machine import Delete, Edit, Empty, Replace
from duramen.queues.operations import NewEntry
from duramen.service.queues import Read, ReadLimits, queue_of
from duramen.sim.broker import CallbackResult

ANN, BOB = b"ann", b"bob"


def made(**config: Any) -> Space:
    return Space(**{name.replace("_", "."): value for name, value in config.items()})


def put(space: Space, queue: bytes, *values: bytes) -> list[Position]:
    return space.put(*((queue, value) for value in values))


def test_the_newest_entries_are_kept() -> None:
    space = made(retention_records=3)
    places = put(space, ANN, b"1", b"2", b"3", b"4", b"5")
    put(space, BOB, b"x")
    assert space.values(ANN) == [b"3", b"4", b"5"]
    assert space.values(ANN, places[0]) == [b"3", b"4", b"5"]
    with pytest.raises(QueueEntryGone):
        space.submit(ANN, Edit, [(places[0], None, b"again")])
    put(space, ANN, b"6")
    assert space.values(ANN) == [b"4", b"5", b"6"]
    assert space.count(ANN)[0].entries == 3
    assert space.values(BOB) == [b"x"]


def test_what_one_read_has_left_out_comes_back_for_none() -> None:
    space = made(retention_records=3)
    places = put(space, ANN, b"1", b"2", b"3", b"4", b"5")
    assert space.values(ANN) == [b"3", b"4", b"5"]
    space.submit(ANN, Delete, [(places[4], None)])
    assert space.values(ANN) == [b"3", b"4"]
    answer: CallbackResult[None] = CallbackResult()
    space.hand.broker.configure_stream(SPACE, {"retention.records": None}, answer)
    space.hand.settle()
    assert answer.value is None
    assert space.values(ANN) == [b"3", b"4"]
    space.hand.restart()
    space.hand.settle()
    assert space.values(ANN) == [b"3", b"4"]


def test_entries_are_kept_for_a_time() -> None:
    space = made(retention_ms=10_000)
    put(space, ANN, b"1", b"2")
    space.hand.advance(6_000)
    put(space, ANN, b"3")
    assert space.values(ANN) == [b"1", b"2", b"3"]
    space.hand.advance(6_000)
    assert space.values(ANN) == [b"3"]
    assert [one.entry.value for one in space.lease(ANN)] == [b"3"]
    space.hand.advance(6_000)
    assert space.values(ANN) == []
    assert space.count(ANN)[0].entries == 0


def test_a_queue_has_bytes_at_most_also_where_an_edit_makes_an_entry_larger() -> None:
    space = made(retention_bytes=3 * (64 + 10))
    places = put(space, ANN, *[b"%010d" % number for number in range(4)])
    assert space.values(ANN) == [b"%010d" % number for number in (1, 2, 3)]
    space.submit(ANN, Edit, [(places[3], None, b"x" * 60)])
    assert space.values(ANN) == [b"%010d" % 2, b"x" * 60]


def test_deleted_and_acknowledged_entries_do_not_count() -> None:
    space = made(retention_records=3)
    first = put(space, ANN, b"1", b"2", b"3")
    assert space.values(ANN) == [b"1", b"2", b"3"]
    space.submit(ANN, Delete, [(first[1], None)])
    put(space, ANN, b"4")
    assert space.values(ANN) == [b"1", b"3", b"4"]
    space.ack(*space.lease(ANN, most=2))
    put(space, ANN, b"5", b"6")
    assert space.values(ANN) == [b"4", b"5", b"6"]


def test_an_entry_does_not_count_that_was_deleted_beside_a_deleted_last_one() -> None:
    space = made(retention_records=3)
    first, _, last = put(space, ANN, b"1", b"2", b"3")
    space.submit(ANN, Delete, [(last, None)])
    assert space.values(ANN) == [b"1", b"2"]
    space.submit(ANN, Delete, [(first, None)])
    put(space, ANN, b"4", b"5")
    assert space.values(ANN) == [b"2", b"4", b"5"]


def test_leases_and_lists_of_queues_see_what_is_kept() -> None:
    space = made(retention_records=2)
    for name in NAMES:
        put(space, name, b"1", b"2", b"3")
    leased = space.lease(*NAMES, most=100)
    assert sorted((one.queue, one.entry.value) for one in leased) == sorted(
        (name, value) for name in NAMES for value in (b"2", b"3")
    )
    assert sorted(space.names()) == sorted(NAMES)


def rows_of(space: Space, queue: bytes) -> int:
    """How many rows of runs there are of a queue."""
    shard = partition_of(queue, space.stream.shards)
    rows = space.hand.broker.coordinators.rows(SPACE, shard)
    return sum(1 for _ in rows.scan(b"r", b"s"))


def test_queues_that_nobody_reads_are_trimmed_in_the_background() -> None:
    space = made(retention_records=1, retention_ms=100_000)
    for number in range(50):
        put(space, ANN, b"%d" % number)
    assert rows_of(space, ANN) == 50
    space.hand.advance(5_000)
    assert rows_of(space, ANN) == 1
    space.hand.advance(200_000)
    assert rows_of(space, ANN) == 0


def test_many_entries_are_trimmed_at_once() -> None:
    space = made(retention_records=5)
    for _ in range(3):
        put(space, ANN, *[b"x"] * 9_000)
    put(space, ANN, *[b"%d" % number for number in range(4)])
    assert space.values(ANN) == [b"x", b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("seed", range(4))
def test_any_operations_leave_the_newest_entries(seed: int) -> None:
    chance, most = random.Random(seed), 4
    space = made(retention_records=most)
    kept = list[tuple[Position, bytes]]()
    for number in range(60):
        do = chance.random()
        if do < 0.5 or not kept:
            values = [b"%d/%d" % (number, place) for place in range(chance.randrange(1, 4))]
            kept += zip(put(space, ANN, *values), values, strict=True)
        elif do < 0.65:
            place = chance.randrange(len(kept))
            kept[place] = kept[place][0], b"e%d" % number
            space.submit(ANN, Edit, [(kept[place][0], None, kept[place][1])])
        elif do < 0.8:
            space.submit(ANN, Delete, [(kept.pop(chance.randrange(len(kept)))[0], None)])
        elif do < 0.9:
            (one,) = space.lease(ANN, most=1) or (None,)
            kept = kept[-most:]
            if one is not None:
                assert space.ack(one) == {}
                kept = [entry for entry in kept if entry[0] != one.entry.position]
        elif do < 0.93:
            space.submit(ANN, Replace, kept[0][0], [NewEntry(b"r")])
            kept = [(entry.position, entry.value or b"") for entry in space.read(ANN).entries]
            assert [value for _, value in kept] == [b"r"]
        elif do < 0.95:
            space.submit(ANN, Empty, "purge")
            kept = []
        else:
            space.hand.restart()
            space.hand.settle()
        if chance.random() < 0.8:
            kept = kept[-most:]
            assert space.values(ANN) == [value for _, value in kept], number


@pytest.mark.parametrize("name", ["retention.ms", "retention.bytes", "retention.records"])
def test_bounds_are_of_spaces_and_are_none_by_default(name: str) -> None:
    space = Space()
    assert space.stream.config.integer(name) == -1
    answer: CallbackResult[DuramenError | None] = CallbackResult()
    space.hand.broker.create_stream(Definition("other", 1, {"kind": "queues", name: "-2"}), answer)
    space.hand.settle()
    assert isinstance(answer.error, ConfigInvalid)


def test_a_read_while_a_shard_is_loaded_has_no_more_than_is_kept() -> None:
    space = made(retention_records=3)
    put(space, ANN, b"1", b"2", b"3", b"4", b"5")
    space.hand.rows.damage(checkpoints=0)  # the shard is loaded anew
    answer: CallbackResult[dict[bytes, Any]] = CallbackResult()
    space.requests.retrieve(space.stream, [Read(ANN, "start")], ReadLimits(10, 1 << 20, 0), answer)
    assert not answer.there
    space.hand.advance(100)
    assert [entry.value for entry in answer.value[ANN].entries] == [b"3", b"4", b"5"]


@pytest.mark.parametrize("kind", [Replace, Delete, Empty])
def test_a_read_at_the_answer_to_an_operation_counts_what_is_left(kind: Any) -> None:
    space = made(retention_records=3)
    places = put(space, ANN, b"1", b"2", b"3")
    assert space.values(ANN) == [b"1", b"2", b"3"]
    new = [NewEntry(b"4"), NewEntry(b"5")]
    more: tuple[object, ...] = {
        Replace: (places[0], new), Delete: ([(at, None) for at in places[:2]],), Empty: ("purge",),
    }[kind]  # fmt: skip
    read: CallbackResult[dict[bytes, Any]] = CallbackResult()

    def answered(_: object) -> None:
        space.requests.retrieve(space.stream, [Read(ANN, "start")], ReadLimits(10, 1 << 20, 0), read)

    queue = queue_of(space.stream, ANN)
    space.requests.submit(space.stream, queue, kind(queue, *more), answered)
    if kind is not Replace:
        space.requests.enqueue(space.stream, [(ANN, entry) for entry in new], lambda _: None)
    space.hand.settle()
    left = {Replace: [], Delete: [b"3"], Empty: []}[kind]
    assert [entry.value for entry in read.value[ANN].entries] == [*left, b"4", b"5"]
    assert space.values(ANN) == [*left, b"4", b"5"]


def test_entries_that_have_expired_do_not_count_before_their_rows_are_gone() -> None:
    space = made(retention_records=3)
    space.put((ANN, b"1"), (ANN, NewEntry(b"2", ttl_ms=1_000)), (ANN, b"3"))
    assert space.values(ANN) == [b"1", b"2", b"3"]
    space.hand.clock.advance(1_000)  # the deadline has not fired
    put(space, ANN, b"4")
    assert space.values(ANN) == [b"1", b"3", b"4"]
