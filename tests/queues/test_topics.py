"""A queue read as a topic: batches, holes and ends, beside a model; and producers that send batches again."""

import random
from bisect import bisect_left

import pytest
from tests.queues.test_queues import HASH

from duramen.base.errors import (
    OffsetOutOfRange,
)
from duramen.base.ids import Position
from duramen.codec.batch import BatchInput, DecodedRecord, batches, encode, records
from duramen.queues.changes import changes
from duramen.queues.names import hash_by
from duramen.queues.operations import NewEntry, delete_record, edit_record, entry_record, replace_record
from duramen.queues.topics import (
    bounds,
    end_of,
    head_of,
    left_of,
    name_of,
    newest,
    read_shared,
    read_topic,
    search,
    topic_id,
)
from duramen.sim.machine.views import MemoryViewStore

NAMES = (b"ann", b"bob", b"eve")


class Shard:
    """Rows of a shard, and what is in its queues."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows = MemoryViewStore()
        self.end = 0
        self.entries: dict[bytes, dict[int, tuple[int, bytes | None]]] = {name: {} for name in NAMES}
        self.ends = dict.fromkeys(NAMES, 0)

    def write(self, *found: BatchInput) -> None:
        batch = bytes(encode(found, base_offset=self.end, leader_epoch=1))
        made = changes([batch], self.end, self.rows, HASH)
        self.end += len(found)
        puts = [(key, value) for key, value in made.items() if value is not None]
        self.rows.write(puts, [key for key, value in made.items() if value is None])

    def put(self, name: bytes, count: int = 1) -> None:
        new = [NewEntry(b"%d" % (self.end + at), timestamp=self.random.randrange(1000)) for at in range(count)]
        for at, entry in enumerate(new, self.end):
            self.entries[name][at] = (entry.timestamp or 0, entry.value)
        self.write(*(entry_record(name, entry, 0) for entry in new))
        self.ends[name] = self.end

    def act(self) -> None:
        name = self.random.choice(NAMES)
        here = self.entries[name]
        if not here or self.random.random() < 0.5:
            self.put(name, self.random.choice((1, 1, 3, 20)))
            return
        at = self.random.choice([*here, max(here)])
        match self.random.randrange(4):
            case 0:
                here[at] = (here[at][0], b"edited")
                self.write(edit_record(name, Position(1, at), b"edited", 0))
            case 1 | 2:
                del here[at]
                self.write(delete_record(name, Position(1, at), 0))
            case _:
                self.entries[name] = {one: entry for one, entry in here.items() if one < at}
                self.write(replace_record(name, Position(1, at), "", "", 0))

    def read(self, name: bytes, offset: int, max_bytes: int) -> tuple[list[DecodedRecord], int, int]:
        """Records, where the reader goes on, the end."""
        found = read_topic(self.rows, HASH(name), offset, max_bytes, 0)
        read, following = list[DecodedRecord](), offset
        for at, head in batches(found.batches):
            assert head.base_offset >= following
            read += records(found.batches[at : at + head.size])
            following = head.base_offset + head.last_offset_delta + 1
        assert following <= found.end
        return read, following, found.end


@pytest.mark.parametrize("seed", range(5))
def test_a_reader_sees_what_is_in_the_queue_and_comes_to_its_end(seed: int) -> None:
    shard = Shard(seed)
    for _ in range(60):
        shard.act()
        for name in NAMES:
            here, start = shard.entries[name], shard.random.randrange(shard.end + 1)
            offset, seen = start, list[tuple[int, bytes | None]]()
            while True:
                read, following, end = shard.read(name, offset, shard.random.choice((1, 200, 1 << 20)))
                seen += [(record.offset, record.value) for record in read]
                if following == offset:
                    break
                offset = following
            assert seen == [(at, value) for at, (_, value) in here.items() if at >= start]
            assert offset == end == max(start, end_of(shard.rows, HASH(name)))
            assert max(here, default=-1) < end_of(shard.rows, HASH(name)) <= shard.ends[name]
            assert not here or head_of(shard.rows, HASH(name), 0) == min(here)


@pytest.mark.parametrize("seed", range(3))
def test_a_share_group_reads_what_it_wants_and_learns_where_nothing_is(seed: int) -> None:
    shard = Shard(seed)
    shard.put(b"eve", 300)
    for _ in range(60):
        shard.act()
        for name in NAMES:
            here, start = shard.entries[name], shard.random.randrange(shard.end + 1)
            share = shard.random.choice((0.01, 0.5, 1.0))
            free = [at for at in range(shard.end + 1) if shard.random.random() < share]
            new = shard.random.choice((None, shard.end + 1))  # nothing new may be acquired, or everything

            def wanted(offset: int, free: list[int] = free, new: int | None = new) -> int | None:
                after = free[bisect_left(free, offset) :]
                return after[0] if after else None if new is None else max(offset, new)

            most, max_bytes = shard.random.choice((1, 4, 1000)), shard.random.choice((1, 200, 1 << 20))
            found = read_shared(shard.rows, HASH(name), start, wanted, most, max_bytes, 0)
            every = [at for at in here if at in free and at >= start]
            assert [*found.offsets] == every[: len(found.offsets)]
            assert bool(found.offsets) == bool(every)
            assert len(found.offsets) <= most
            assert not [at for at in every[len(found.offsets) :] if at < found.end]
            assert found.end >= found.offsets[-1] + 1 if found.offsets else found.end >= start
            data = found.batches
            values = [record.value for at, head in batches(data) for record in records(data[at : at + head.size])]
            assert values == [here[at][1] for at in found.offsets]
            left = [at for at in here if at in free]
            is_over = {*range(shard.end)}.difference(left).__contains__
            first, count = left_of(shard.rows, HASH(name), 0, is_over, 7, 0)
            assert (first, count) == (left[0] if left else end_of(shard.rows, HASH(name)), min(7, len(left)))


def test_a_time_is_found_some_entries_at_once() -> None:
    shard, queue = Shard(1), HASH(b"ann")
    shard.put(b"ann", 100)
    young = next(at for at, (timestamp, _) in shard.entries[b"ann"].items() if timestamp >= 900)
    found = search(shard.rows, queue, 0, 900, 3, 0)
    while found.next >= 0:
        found = search(shard.rows, queue, found.next, 900, 3, 0)
    assert found.offset == young
    latest = newest(shard.rows, queue, 0, (-1, -1), 7, 0)
    while latest.next >= 0:
        latest = newest(shard.rows, queue, latest.next, (latest.offset, latest.timestamp), 7, 0)
    assert latest.timestamp == max(timestamp for timestamp, _ in shard.entries[b"ann"].values())
    assert search(shard.rows, queue, 0, 5000, 1000, 0).offset == -1


@pytest.mark.parametrize("seed", range(3))
def test_bounds_find_a_time_and_the_last_records(seed: int) -> None:
    shard = Shard(seed)
    for _ in range(60):
        shard.act()
        for name in NAMES:
            here, queue = shard.entries[name], HASH(name)
            head, end = head_of(shard.rows, queue, 0), end_of(shard.rows, queue)
            assert bounds(shard.rows, queue, -1, -1, 0, 1, 0) == (head, end, -1, -1)
            last = shard.random.randrange(len(here) + 2)
            first = [*here, end][max(0, len(here) - last)]
            assert bounds(shard.rows, queue, -1, last, 0, 1, 0) == (head, end, first, -1)
            since_ms = shard.random.randrange(1000)
            found = bounds(shard.rows, queue, since_ms, -1, 0, 7, 0)
            while found.next >= 0:
                found = bounds(shard.rows, queue, since_ms, -1, found.next, 7, 0)
            young = (at for at, (timestamp, _) in here.items() if timestamp >= since_ms)
            assert found == (head, end, next(young, -1), -1)


def test_offsets_of_the_shard_are_in_range_and_no_others() -> None:
    shard = Shard(1)
    shard.put(b"ann")
    shard.put(b"bob")
    assert read_topic(shard.rows, HASH(b"ann"), 2, 1, 0).end == 2
    for offset in (-1, 3):
        with pytest.raises(OffsetOutOfRange):
            read_topic(shard.rows, HASH(b"ann"), offset, 1, 0)


def test_an_id_leads_to_the_name() -> None:
    shard = Shard(1)
    for name in NAMES:
        shard.put(name)
    assert [name_of(shard.rows, topic_id(7, HASH(name))) for name in NAMES] == [*NAMES]
    assert name_of(shard.rows, topic_id(7, hash_by(b"other")(b"ann"))) is None
