"""Leases on entries of queues: one holder at a time, whatever happens; what is acknowledged stays so."""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest
from tests.coordinators.queue.spaces import NAMES, SPACE, Space

from duramen.base.errors import QueueEntryGone, QueueLeaseExpired, StorageFull
from duramen.base.ids import Position
from duramen.codec.batch import encode
from duramen.codec.partitioner import partition_of
from duramen.coordinators.queue.shard import QueueShard
from duramen.queues.changes import changes
from duramen.queues.leases import Leased, LeasedEntry, LeaseLimits, lease_text, parse_lease
from duramen.queues.machine import Delete, Due, Edit, Empty
from duramen.queues.names import Queue, hash_by
from duramen.queues.operations import NewEntry, entry_record
from duramen.queues.positions import position_text
from duramen.queues.rows import due_key
from duramen.service.led_queues import Refused
from duramen.service.queue_leases import LeaseRequest
from duramen.service.queues import request_of
from duramen.sim.broker import CallbackResult
from duramen.sim.machine.views import MemoryViewStore


@pytest.fixture
def space() -> Space:
    return Space()


def values(leased: list[Leased]) -> list[bytes | None]:
    return [one.entry.value for one in leased]


def test_an_entry_has_one_holder_until_it_is_acknowledged_or_its_lease_expires(space: Space) -> None:
    space.put((b"ann", b"one"), (b"ann", b"two"))
    first = space.lease(b"ann", most=1)
    assert (values(first), first[0].deliveries) == ([b"one"], 1)
    assert parse_lease(lease_text(first[0].lease)) == first[0].lease
    assert values(space.lease(b"ann")) == [b"two"]
    assert space.lease(b"ann") == []
    assert space.ack(*first) == {}
    assert space.values(b"ann") == [b"two"]
    assert isinstance(space.ack(*first)[0], QueueEntryGone)
    space.hand.advance(1_000)
    again = space.lease(b"ann")
    assert (values(again), again[0].deliveries) == ([b"two"], 2)
    assert space.ack(*again) == {}
    assert space.values(b"ann") == []


def test_what_was_leased_again_is_not_the_first_ones_to_acknowledge_give_back_or_extend(space: Space) -> None:
    space.put((b"ann", b"one"))
    [old] = space.lease(b"ann")
    space.hand.advance(1_000)
    [new] = space.lease(b"ann")
    assert isinstance(space.ack(old)[0], QueueLeaseExpired)
    assert isinstance(space.ack(old, release_ms=0)[0], QueueLeaseExpired)
    assert isinstance(space.extend(old, 5_000)[0], QueueLeaseExpired)
    assert space.extend(new, 5_000) == {}
    space.hand.advance(4_999)
    assert space.lease(b"ann") == []
    assert space.ack(new) == {}


def test_an_acknowledgement_with_a_lease_of_an_earlier_leadership_counts_while_the_entry_is_there(space: Space) -> None:
    space.put((b"ann", b"one"), (b"ann", b"two"))
    before = space.lease(b"ann")
    space.hand.crash()
    now = space.lease(b"ann")
    assert [one.deliveries for one in now] == [1, 1]
    assert space.ack(before[0]) == {}
    assert isinstance(space.ack(before[1], release_ms=0)[0], QueueLeaseExpired)
    assert isinstance(space.ack(now[0])[0], QueueEntryGone)
    assert space.ack(now[1]) == {}
    assert space.values(b"ann") == []


def test_an_entry_that_is_given_back_comes_again_at_once_or_after_its_delay(space: Space) -> None:
    space.put((b"ann", b"one"), (b"ann", b"two"))
    one, two = space.lease(b"ann")
    assert space.ack(one, release_ms=2_000) == {}
    assert space.ack(two, release_ms=0) == {}
    [two] = space.lease(b"ann")
    assert (two.entry.value, two.deliveries) == (b"two", 2)
    waits = space.poll_leases(LeaseRequest([b"ann"], 1, 1_000, wait_ms=60_000))
    assert space.ack(two) == {}
    space.hand.advance(1_999)
    assert not waits.there
    space.hand.advance(1)
    assert [(one.entry.value, one.deliveries) for one in waits.value] == [(b"one", 2)]
    space.hand.restart()
    [one] = space.lease(b"ann")
    assert one.deliveries == 2  # the third one was not written before the restart


def test_an_entry_that_was_delivered_too_many_times_goes_to_the_dead_letter_queue_once() -> None:
    space = Space(queue_dead_letter_queue="dead", queue_delivery_count_limit="2")
    space.put((b"ann", NewEntry(b"poison", key=b"k", headers=((b"h", b"v"),))), (b"ann", b"fine"))
    for deliveries in (1, 2):
        [poison, fine] = space.lease(b"ann")
        assert (poison.entry.value, poison.deliveries) == (b"poison", deliveries)
        if deliveries == 1:
            assert space.ack(poison, fine, release_ms=0) == {}
        else:
            assert space.ack(fine) == {}
            space.hand.advance(1_000)  # its client is gone
    assert space.lease(b"ann") == []
    space.hand.crash()
    assert space.values(b"ann") == []
    [dead] = space.read(b"dead").entries
    assert (dead.value, dead.key) == (b"poison", b"k")
    said = dict(dead.headers)
    assert (said[b"h"], said[b"duramen-dead-letter-queue"], said[b"duramen-dead-letter-deliveries"]) == (
        b"v", b"ann", b"2",
    )  # fmt: skip
    for _ in range(4):
        [dead_letter] = space.lease(b"dead")
        space.ack(dead_letter, release_ms=0)


@pytest.mark.parametrize("size", [800, 824, 900, 3_000])
def test_a_dead_entry_is_moved_however_large_it_is(size: int) -> None:
    space = Space(queue_dead_letter_queue="dead", queue_delivery_count_limit="1")
    space.put((b"ann", bytes(size)))
    answer: CallbackResult[None] = CallbackResult()
    space.hand.broker.configure_stream(SPACE, {"max.message.bytes": "1024"}, answer)
    space.hand.settle()
    assert answer.error is None
    [poison] = space.lease(b"ann")
    assert space.ack(poison, release_ms=0) == {}
    assert space.lease(b"ann") == []
    assert space.values(b"ann") == []
    [dead] = space.read(b"dead").entries
    assert (dead.value, dict(dead.headers)[b"duramen-dead-letter-queue"]) == (bytes(size), b"ann")


def test_a_dead_entry_that_was_moved_with_another_count_of_deliveries_is_not_moved_again() -> None:
    space = Space(queue_dead_letter_queue="dead", queue_delivery_count_limit="1")
    (at,) = space.put((b"ann", b"poison"))
    shard = partition_of(b"ann", space.stream.shards)
    space.put((b"dead", b"poison"), request=f"duramen dead letter {shard}/{position_text(at)}")
    [poison] = space.lease(b"ann")
    assert space.ack(poison, release_ms=0) == {}
    assert space.lease(b"ann") == []
    assert space.values(b"ann") == []
    assert space.values(b"dead") == [b"poison"]


def test_a_request_id_of_an_acknowledgement_is_not_for_another(space: Space) -> None:
    space.put(*((b"ann", b"%d" % number) for number in range(3)))
    first, second, third = space.lease(b"ann")
    assert space.ack(first, request="a") == {}
    assert space.ack(second) == {}
    assert [error.id for error in space.ack(second, request="a").values()] == ["queue-request-reused"]
    assert [error.id for error in space.ack(third, request="a").values()] == ["queue-request-reused"]
    assert space.ack(third, request="b", release_ms=0) == {}
    assert [error.id for error in space.ack(third, request="b", release_ms=5).values()] == ["queue-request-reused"]
    assert space.values(b"ann") == [b"2"]


def test_a_fifo_queue_has_one_lease_at_a_time_and_keeps_its_order(space: Space) -> None:
    space.put(*((b"ann", b"%d" % number) for number in range(4)))
    first = space.lease(b"ann", most=2, fifo=True)
    assert values(first) == [b"0", b"1"]
    assert space.lease(b"ann", most=2, fifo=True) == []
    space.ack(first[1])
    assert space.lease(b"ann", most=2, fifo=True) == []
    space.ack(first[0], release_ms=500)
    assert space.lease(b"ann", most=2, fifo=True) == []  # what is behind it waits
    space.hand.advance(500)
    assert values(space.lease(b"ann", most=2, fifo=True)) == [b"0", b"2"]


def test_no_queue_waits_for_a_longer_one(space: Space) -> None:
    space.put(*((NAMES[0], b"long") for _ in range(100)), *((name, b"short") for name in NAMES[1:]))
    found = space.lease(*NAMES, most=2 * len(NAMES))
    assert {one.queue for one in found} == set(NAMES)
    assert len(found) == 2 * len(NAMES)


def test_entries_are_found_among_very_many_queues(space: Space) -> None:
    names = [b"queue %d" % number for number in range(400)]
    space.put((names[17], b"a"), (names[333], b"b"))
    assert sorted(one.queue for one in space.lease(*names, most=5)) == sorted((names[17], names[333]))
    waits = space.poll_leases(LeaseRequest(names, 1, 1_000, wait_ms=5_000))
    space.put((names[250], b"c"))
    space.hand.advance(10)
    assert values(waits.value) == [b"c"]


def test_who_waits_gets_what_is_put_in(space: Space) -> None:
    waits = space.poll_leases(LeaseRequest(NAMES, 1, 1_000, wait_ms=5_000))
    space.put((NAMES[3], b"one"))
    assert values(waits.value) == [b"one"]
    late = space.poll_leases(LeaseRequest(NAMES, 1, 500, wait_ms=5_000))
    space.hand.advance(1_000)
    assert [one.deliveries for one in late.value] == [2]


def test_a_delayed_entry_is_shown_after_its_delay_and_an_expired_one_never_again(space: Space) -> None:
    late, short = NewEntry(b"late", delay_ms=1_000), NewEntry(b"short", ttl_ms=500)
    first, second = space.put((b"ann", late), (b"ann", short))
    assert space.values(b"ann") == [b"short"]
    waits = space.poll_leases(LeaseRequest([b"ann"], 5, 10_000, wait_ms=60_000))
    assert values(waits.value) == [b"short"]
    waits = space.poll_leases(LeaseRequest([b"ann"], 5, 10_000, wait_ms=60_000))
    space.hand.advance(500)
    assert space.values(b"ann") == []
    with pytest.raises(QueueEntryGone):
        space.submit(b"ann", Edit, [(second, None, b"x")])
    space.submit(b"ann", Edit, [(first, None, b"edited")])
    space.hand.advance(499)
    assert not waits.there
    space.hand.advance(1)
    assert values(waits.value) == [b"edited"]


@pytest.mark.parametrize("back_ms", [0, 3_600_000])
def test_a_delayed_entry_is_leased_though_the_clock_was_set_back(space: Space, back_ms: int) -> None:
    space.put((b"ann", b"one"), (b"bob", NewEntry(b"late", delay_ms=1_000)))
    space.hand.advance(1_000)
    [one] = space.lease(b"ann")
    space.hand.clock.jump(-back_ms)
    space.put((b"ann", NewEntry(b"two", delay_ms=1_000)))
    assert space.lease(b"ann") == []
    assert space.ack(one, release_ms=2_000) == {}
    space.hand.advance(1_000)
    assert values(space.lease(b"ann")) == [b"two"]
    space.hand.advance(1_000)
    assert b"one" in values(space.lease(b"ann"))


@pytest.mark.parametrize("fifo", [False, True])
def test_a_delay_that_has_ended_does_not_begin_again_when_the_clock_is_set_back(space: Space, *, fifo: bool) -> None:
    """The same as a new leader whose clock is behind."""
    space.put((b"ann", NewEntry(b"one", delay_ms=1_000)))
    space.hand.advance(1_000)
    space.hand.clock.jump(-500)
    [one] = space.lease(b"ann", fifo=fifo)
    assert space.ack(one, release_ms=2_000) == {}
    assert space.lease(b"ann", fifo=fifo) == []
    space.hand.advance(2_000)
    space.hand.clock.jump(-500)
    assert values(space.lease(b"ann", fifo=fifo)) == [b"one"]


def test_a_request_id_makes_each_operation_once_over_a_crash(space: Space) -> None:
    def put() -> list[Position]:
        return space.put(*((name, b"x") for name in NAMES), request="put")

    before = put()
    space.hand.crash()
    assert put() == before
    assert [space.values(name) for name in NAMES] == [[b"x"]] * len(NAMES)
    leased = space.lease(NAMES[0])
    assert space.ack(*leased, request="ack") == {}
    space.hand.crash()
    assert space.ack(*leased, request="ack") == {}
    assert isinstance(space.ack(*leased, request="another")[0], QueueEntryGone)
    at = before[1]
    request = request_of(space.stream, "delete")
    assert space.submit(NAMES[1], Delete, [(at, None)], request) == space.submit(
        NAMES[1], Delete, [(at, None)], request
    )


def test_whatever_was_leased_is_acknowledged_or_given_back_in_one_request() -> None:
    space = Space(max_message_bytes="1024")
    for number in range(60):
        space.put(*((name, b"%d" % number) for name in NAMES))
    leased = space.lease(*NAMES, most=1_000)
    assert len(leased) == 60 * len(NAMES)
    assert space.ack(*leased[::2]) == {}
    assert space.ack(*leased[1::2], release_ms=0) == {}
    again = space.lease(*NAMES, most=1_000)
    assert [(len(again), one.deliveries) for one in again[:1]] == [(len(leased) // 2, 2)]
    refused = space.ack(*leased)
    assert {number: type(error) for number, error in refused.items() if number % 2 == 0} == dict.fromkeys(
        range(0, len(leased), 2), QueueEntryGone
    )


def test_a_large_acknowledgement_with_a_request_id_is_made_once_and_the_id_is_not_for_another() -> None:
    space = Space(max_message_bytes="1024")
    for number in range(60):
        space.put((b"ann", b"%d" % number))
    leased = space.lease(b"ann", most=60)
    assert space.ack(*leased[:40], request="ack") == {}
    space.hand.crash()
    assert space.ack(*leased[:40], request="ack") == {}
    refused = space.ack(*leased[:41], request="ack")
    assert {error.id for error in refused.values()} == {"queue-request-reused"}
    assert len(refused) == 41
    assert space.values(b"ann") == [b"%d" % number for number in range(40, 60)]
    released = space.lease(b"ann", most=60)
    for _ in range(2):
        assert space.ack(*released, request="nack", release_ms=0) == {}
    assert {one.deliveries for one in space.lease(b"ann", most=60)} == {2}


def test_an_emptied_queue_goes_on_and_a_dropped_one_is_not_listed(space: Space) -> None:
    (at,) = space.put((b"ann", b"one"))
    space.put((b"bob", b"one"))
    space.submit(b"ann", Empty, "purge")
    with pytest.raises(QueueEntryGone):
        space.submit(b"ann", Delete, [(at, None)])
    space.put((b"ann", b"two"))
    assert space.values(b"ann", at) == [b"two"]
    space.submit(b"bob", Empty, "drop")
    assert space.names() == [b"ann"]
    counted, leased = space.count(b"ann")
    assert (counted.entries, leased) == (1, 0)


Entry = tuple[bytes, Position]


@dataclass
class Held:
    lease: Leased
    until_ms: int
    leadership: int


class Checked:
    """Random leases of clients beside what may be: whom each entry belongs to, and which are done with."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.space = Space(seed, checkpoint_records=12, queue_log_retention_ms="0", segment_bytes="2000")
        self.live: set[Entry] = set()
        self.delivered: dict[Entry, list[int]] = {}  # the leaderships in which it was delivered
        self.held: dict[Entry, Held] = {}
        self.old: list[Held] = []
        self.leadership = 0

    @property
    def now_ms(self) -> int:
        return self.space.hand.broker.now_ms()

    def step(self) -> None:
        do = self.chance.random()
        if do < 0.3:
            new = [(self.chance.choice(NAMES), b"value") for _ in range(self.chance.randrange(1, 6))]
            for (queue, _), at in zip(new, self.space.put(*new), strict=True):
                self.live.add((queue, at))
                self.delivered[queue, at] = []
        elif do < 0.55:
            self.lease()
        elif do < 0.8 and self.held:
            self.acknowledge(self.chance.choice(list(self.held.values())))
        elif do < 0.9 and self.old:
            self.acknowledge(self.chance.choice(self.old))
        else:
            self.space.hand.advance(self.chance.choice((10, 300, 1_000)))

    def lease(self) -> None:
        queues = self.chance.sample(NAMES, self.chance.randrange(1, len(NAMES) + 1))
        lease_ms = self.chance.choice((200, 2_000))
        for one in self.space.lease(*queues, most=self.chance.randrange(1, 6), lease_ms=lease_ms):
            at = one.queue, one.entry.position
            assert at in self.live
            holder = self.held.get(at)
            if holder is not None:
                assert holder.until_ms <= self.now_ms
                self.old.append(holder)
            self.delivered[at].append(self.leadership)
            most, changes = len(self.delivered[at]), self.leadership - self.delivered[at][0]
            assert most - changes <= one.deliveries <= most
            self.held[at] = Held(one, self.now_ms + lease_ms, self.leadership)

    def acknowledge(self, held: Held) -> None:
        at, do = (held.lease.queue, held.lease.entry.position), self.chance.random()
        holds = self.held.get(at) is held and held.until_ms > self.now_ms and held.leadership == self.leadership
        counts = at in self.live and (holds or held.leadership < self.leadership)
        if do < 0.7:
            assert (not self.space.ack(held.lease)) == counts
            if counts:
                self.live.remove(at)
                self.held.pop(at, None)
        elif do < 0.85:
            assert (not self.space.ack(held.lease, release_ms=self.chance.choice((0, 400)))) == holds
            if holds:
                self.old.append(self.held.pop(at))
        else:
            assert (not self.space.extend(held.lease, 700)) == holds
            if holds:
                held.until_ms = self.now_ms + 700

    def trouble(self) -> None:
        if self.chance.random() < 0.7:
            self.space.hand.crash(self.chance.randrange(1000))
        else:
            self.space.hand.restart()
        self.leadership += 1
        self.old += self.held.values()
        self.held.clear()

    def check(self) -> None:
        for name in NAMES:
            found = [entry.position for entry in self.space.read(name).entries]
            assert found == sorted(at for queue, at in self.live if queue == name)


@pytest.mark.variants(2)
@pytest.mark.parametrize("seed", range(6))
def test_an_entry_has_at_most_one_holder_in_a_leadership_and_is_gone_once_acknowledged(seed: int) -> None:
    run = Checked(seed)
    for _ in range(10):
        for _ in range(run.chance.randrange(5, 40)):
            run.step()
        run.trouble()
        run.check()
    run.space.hand.advance(5_000)
    while leased := run.space.lease(*NAMES, most=100):
        assert run.space.ack(*leased) == {}
        for one in leased:
            run.live.remove((one.queue, one.entry.position))
    assert run.live == set()


def fill(space: Space, value: bytes) -> None:
    with suppress(StorageFull):
        while True:
            space.put((b"ann", value))


def test_what_could_not_be_stored_is_still_the_holders(space: Space) -> None:
    [at] = space.put((b"ann", b"one"))
    [leased] = space.lease(b"ann", lease_ms=100_000)
    space.hand.files.free_bytes = 0
    for size in (300_000, 1):
        fill(space, bytes(size))
    assert isinstance(space.ack(leased)[0], StorageFull)
    space.hand.files.free_bytes = 1 << 40
    space.hand.advance(10_000)
    assert space.read(b"ann", limit=1).entries[0].position == at
    assert space.ack(leased) == {}
    assert space.read(b"ann", limit=1).entries[0].position != at


def test_delays_that_end_while_nothing_can_be_stored_end_later(space: Space) -> None:
    space.put((b"ann", NewEntry(b"early", delay_ms=1_000)), (b"ann", NewEntry(b"late", delay_ms=120_000)))
    assert space.lease(b"ann") == []
    space.hand.files.free_bytes = 0
    for size in (300_000, 1):
        fill(space, bytes(size))
    space.hand.advance(180_000)
    space.hand.files.free_bytes = 1 << 40
    space.hand.advance(10_000)
    assert {b"early", b"late"}.issubset(values(space.lease(b"ann")))


def test_a_shard_that_is_loaded_again_does_not_repeat_at_once_what_could_not_be_stored() -> None:
    rows, shard, now_ms = MemoryViewStore(), QueueShard(), 5_000
    rows.write([(due_key(3_000, bytes(16), 1), b"")], ())
    list(shard.loaded(rows))
    assert shard.next_ms() == 3_000
    assert list(shard.due(now_ms)) == [Due()]
    assert shard.decide(Due(), rows, now_ms).inputs
    list(shard.loaded(rows))
    assert shard.next_ms() == now_ms + 1_000
    assert list(shard.due(now_ms)) == []
    assert list(shard.due(now_ms + 1_000)) == [Due()]


def test_leases_stay_where_a_shard_is_loaded_again_and_end_with_the_leadership() -> None:
    rows, hash_name = MemoryViewStore(), hash_by(b"a space")
    queue = Queue(b"ann", hash_name(b"ann"))
    batch = bytes(encode([entry_record(b"ann", NewEntry(b"one"), 0)]))
    rows.write([(key, value) for key, value in changes([batch], 0, rows, hash_name).items() if value is not None], ())
    shard, wish = QueueShard(), LeaseLimits(1, 1 << 20, 10_000)
    list(shard.loaded(rows))
    [old] = shard.leases.lease(rows, queue, wish, 0, 0)
    assert shard.leases.lease(rows, queue, wish, 0, 0) == []
    list(shard.loaded(rows))
    entry = LeasedEntry(old.entry.position, old.lease)
    assert shard.leases.lease(rows, queue, wish, 0, 0) == []
    shard.leases.extend(rows, queue, entry, 20_000, 0)
    other = QueueShard()
    list(other.loaded(rows))
    [new] = other.leases.lease(rows, queue, wish, 0, 1)
    assert new.lease != old.lease
    with pytest.raises(QueueLeaseExpired):
        other.leases.extend(rows, queue, entry, 20_000, 0)
    assert other.leases.ack(rows, [(queue, entry)], 0, again=False).refused == {}


def test_what_is_decided_at_the_answer_to_a_nack_takes_nothing_of_it_back() -> None:
    space = Space()
    space.put((NAMES[0], b"1"), (NAMES[0], b"2"))
    first, second = space.lease(NAMES[0])
    refused = list[Refused]()

    def settle(one: Leased, release_ms: int | None, done: Callable[[Refused], None]) -> None:
        entries = [(NAMES[0], LeasedEntry(one.entry.position, one.lease))]
        space.led.acknowledge(space.stream, entries, done, None, release_ms)

    def answered(found: Refused) -> None:
        refused.append(found)
        settle(second, None, refused.append)

    settle(first, 0, answered)
    space.hand.settle()
    assert refused == [{}, {}]
    assert space.count(NAMES[0])[1] == 0
    assert [one.entry.value for one in space.lease(NAMES[0])] == [b"1"]
