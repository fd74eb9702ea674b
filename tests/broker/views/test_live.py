"""Live topics on a node: passes with fixed ends, readers that come back, and tombstones that are kept for them."""

from random import Random

import pytest
from tests.broker.views.test_views import Keyed

from duramen.base.errors import OffsetOutOfRange
from duramen.broker.fetch import FetchResult, PartitionFetch
from duramen.codec.batch import CONTROL, batches, records
from duramen.sim.broker import CallbackResult


class Connection:
    """A client's connection."""


class LiveReader:
    """A consumer of the live topic without sockets."""

    def __init__(self, keyed: Keyed, client_id: str = "c") -> None:
        self.keyed = keyed
        self.client_id = client_id
        self.connection = Connection()
        self.start_over()

    def start_over(self, *, reconnect: bool = True) -> None:
        self.connection = Connection() if reconnect else self.connection
        self.offset = 0
        self.state: dict[bytes, bytes] = {}
        self.end = -1

    def begin(self, *, max_bytes: int = 1 << 20, max_wait_ms: int = 0) -> CallbackResult[list[FetchResult]]:
        """A fetch that is not answered yet."""
        broker = self.keyed.hand.broker
        stream = broker.streams.get("users")
        partition, view = stream.partition(0), self.keyed.view
        live = broker.live.reader(stream, partition, view, self.connection, self.client_id, self.offset)
        answer: CallbackResult[list[FetchResult]] = CallbackResult()
        wanted = [PartitionFetch(partition, self.offset, max_bytes, live=live)]
        broker.fetches.fetch(wanted, min_bytes=1, max_bytes=max_bytes, max_wait_ms=max_wait_ms, done=answer)
        self.keyed.hand.settle()
        return answer

    def fetch(self, *, max_bytes: int = 1 << 20) -> FetchResult:
        """One fetch. Raises what it was refused with."""
        return self.take(self.begin(max_bytes=max_bytes))

    def take(self, answer: CallbackResult[list[FetchResult]]) -> FetchResult:
        """Take in what was answered."""
        (found,) = answer.value
        if found.error is not None:
            raise found.error
        self.end = found.high_watermark
        assert found.last_stable_offset == self.end
        view = memoryview(found.made or b"")
        for at, head in batches(view):
            assert head.producer_id == -1
            assert not head.attributes & CONTROL
            for record in records(view[at : at + head.size]):
                if record.offset >= self.offset:
                    assert record.key is not None
                    self.state.pop(record.key, None)
                    if record.value is not None:
                        self.state[record.key] = record.value
            self.offset = head.next_offset
        return found

    def read_pass(self, *, max_bytes: int = 1 << 20) -> None:
        """Read until the end is told."""
        self.fetch(max_bytes=max_bytes)
        while self.offset < self.end:
            self.fetch(max_bytes=max_bytes)


def test_a_pass_ends_where_it_was_to_end_and_the_next_one_has_what_came_meanwhile() -> None:
    keyed = Keyed()
    for number in range(40):
        keyed.produce((b"k%d" % (number % 20), b"%d" % number))
    reader = LiveReader(keyed)
    reader.fetch(max_bytes=100)
    assert (reader.end, list(reader.state)) == (40, [b"k0", b"k1"])
    keyed.produce((b"k5", b"new"), (b"k0", None))
    reader.read_pass()
    assert (reader.offset, reader.end) == (40, 40)
    assert reader.state == keyed.state(40)
    answer = reader.begin(max_wait_ms=60_000)  # the end, at once
    assert answer.there
    assert reader.take(answer).made is None
    assert reader.end == 40
    reader.read_pass()
    assert (reader.offset, reader.state) == (42, keyed.state(42))


def test_who_knows_of_the_end_waits_for_the_next_pass() -> None:
    keyed = Keyed()
    keyed.produce((b"a", b"1"))
    reader = LiveReader(keyed)
    reader.read_pass()
    assert reader.fetch().made is None
    answer = reader.begin(max_wait_ms=60_000)
    assert answer.calls == []
    keyed.produce((b"a", b"2"), (b"b", b"3"))
    keyed.hand.advance(100)
    assert answer.there
    reader.take(answer)
    assert (reader.offset, reader.end, reader.state) == (3, 3, {b"a": b"2", b"b": b"3"})
    reader.fetch()
    answer = reader.begin(max_wait_ms=500)
    keyed.hand.advance(600)
    assert reader.take(answer).made is None
    assert reader.end == 3


def test_holes_are_carried_by_empty_batches() -> None:
    keyed = Keyed()
    keyed.produce(*((b"k%d" % number, b"v") for number in range(5)))
    reader = LiveReader(keyed)
    reader.read_pass()
    keyed.produce(*((b"gone", b"%d" % number) for number in range(30)), (b"gone", None))
    keyed.hand.advance(100)
    reader.fetch()
    reader.read_pass()
    assert (reader.offset, reader.state) == (36, keyed.state(36))
    keyed.hand.restart()
    second = LiveReader(keyed)
    second.offset = 10
    found = second.fetch(max_bytes=1)
    assert [head.records for _, head in batches(memoryview(found.made or b""))] == [1]
    assert second.offset == 36
    keyed.produce((b"gone", b"1"), (b"k0", None), (b"gone", None))
    keyed.hand.advance(100)
    assert not second.fetch().made
    found = second.fetch()
    assert [
        (head.base_offset, head.next_offset, head.records) for _, head in batches(memoryview(found.made or b""))
    ] == [(36, 39, 2)]


def test_a_reader_that_comes_back_below_the_horizon_has_to_start_over() -> None:
    keyed = Keyed(snapshot_retention_ms=0, delete_retention_ms=5_000, snapshot_lease_ms=10_000)
    for number in range(60):
        keyed.produce((b"k%d" % (number % 30), None if number % 3 else b"%d" % number))
        keyed.hand.advance(200)
    reader = LiveReader(keyed)
    reader.read_pass()
    keyed.hand.advance(60_000)
    keyed.produce((b"last", b"1"))
    keyed.hand.advance(60_000)
    assert keyed.view.bounds.horizon >= 60
    late = LiveReader(keyed)
    late.offset = 30
    with pytest.raises(OffsetOutOfRange, match="read from the start"):
        late.fetch()
    for reconnect in (False, True):
        late.connection, late.offset = Connection(), 61
        late.fetch()
        late.connection, late.offset = Connection(), 31
        with pytest.raises(OffsetOutOfRange):
            late.fetch()
        late.start_over(reconnect=reconnect)
        late.read_pass()
        assert late.state == keyed.state(61)
    reader.start_over()
    reader.fetch(max_bytes=1)
    for number in range(60):
        keyed.produce((b"k%d" % number, None))
    for _ in range(3):
        keyed.hand.advance(60_000)
        keyed.produce((b"last", b"2"))
    reader.offset = 0
    reader.start_over(reconnect=False)
    reader.read_pass()
    assert reader.state == keyed.state(reader.end)


def test_tombstones_are_kept_for_a_reader_from_the_start_over_a_reconnect() -> None:
    keyed = Keyed(snapshot_retention_ms=0, delete_retention_ms=1_000, snapshot_lease_ms=100_000)
    for number in range(60):
        keyed.produce((b"k%d" % number, b"%d" % number))
    reader = LiveReader(keyed)
    reader.fetch(max_bytes=1)
    end = reader.end
    for number in range(60):
        keyed.produce((b"k%d" % number, None))
        keyed.hand.advance(500)
    keyed.produce((b"last", b"1"))
    for _ in range(20):
        keyed.hand.advance(5_000)
        reader.fetch(max_bytes=1)
        assert keyed.view.bounds.horizon <= max(end, reader.offset)
    other = LiveReader(keyed, "another client")
    other.offset = 1
    reader.connection = Connection()
    reader.read_pass(max_bytes=200)
    assert reader.offset == reader.end
    reader.fetch()
    reader.read_pass()
    assert reader.end == 121
    assert reader.state == {b"last": b"1"}
    reader.fetch()
    keyed.hand.advance(200_000)
    keyed.produce((b"last", b"2"))
    keyed.hand.advance(200_000)
    assert keyed.view.bounds.horizon > end
    with pytest.raises(OffsetOutOfRange):
        other.fetch()


def run(seed: int, steps: int) -> int:
    """Chance writes, restarts, compacts and reads. Returns how often readers came to an end of a pass."""
    chance = Random(seed)
    keyed, ends = Keyed(seed), 0
    hand, readers = keyed.hand, [LiveReader(keyed, f"c{number}") for number in range(3)]
    for _ in range(steps):
        step = chance.random()
        if step < 0.4:
            keyed.produce(
                *(
                    (b"k%d" % chance.randrange(12), None if chance.random() < 0.25 else b"%d" % chance.randrange(10**6))
                    for _ in range(chance.randrange(1, 9))
                )
            )
        elif step < 0.55:
            hand.advance(chance.choice((100, 1100, 4000, 30_000)))
        elif step < 0.6:
            hand.restart()
        elif step < 0.65:
            hand.crash(chance.randrange(1 << 30))
        reader = chance.choice(readers)
        if chance.random() < 0.1:
            reader.connection = Connection()
        try:
            reader.fetch(max_bytes=chance.choice((1, 200, 1 << 20)))
        except OffsetOutOfRange:
            reader.start_over(reconnect=chance.random() < 0.5)
            continue
        if reader.offset == reader.end:
            ends += 1
            assert reader.state == keyed.state(reader.end), (seed, reader.end)
    return ends


def test_the_state_at_every_boundary_is_one_that_existed() -> None:
    assert run(3, 150) > 20


@pytest.mark.long
def test_the_state_at_every_boundary_is_one_that_existed_for_long() -> None:
    for seed in range(20):
        assert run(seed, 300)
