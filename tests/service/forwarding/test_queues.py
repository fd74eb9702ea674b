"""Queues of three brokers: what only the leader of a shard knows is asked for from any of them."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from tests.service.forwarding.world import World

from duramen.base.errors import (
    DuramenError,
    ExportExpired,
    NotCoordinator,
    NotLeader,
    QueueEntryGone,
    QueueEntryTooLarge,
    QueueLeaseExpired,
    StateDamaged,
)
from duramen.broker.streams import Stream
from duramen.codec.exports import read_runs_page
from duramen.codec.partitioner import partition_of
from duramen.coordinators.runtime.runtime import Runtime
from duramen.metadata.decisions import Definition
from duramen.queues.answers import entry_json_size
from duramen.queues.leases import Leased, LeasedEntry
from duramen.queues.machine import Empty
from duramen.queues.operations import NewEntry
from duramen.queues.positions import FIRST
from duramen.queues.reading import Counted, Retrieved
from duramen.queues.runs import Run
from duramen.service.forwarding.exports import ExportedShard, RunsRange
from duramen.service.led_queues import LedQueues, Refused
from duramen.service.queue_leases import LeasePoll, LeaseRequest
from duramen.service.queues import Enqueued, QueueRequests, Read, ReadLimits, queue_of, request_of, space_of
from duramen.sim.broker import CallbackResult

SPACE = "mail"
SHARDS = 3
NAMES = [b"user-%d" % number for number in range(12)]
NODES = (1, 2, 3)


class Queues(World):
    """A queue space of three shards; node N + 1 leads shard N."""

    def __init__(self, **config: str) -> None:
        super().__init__()
        created: CallbackResult[None] = CallbackResult()
        self.broker(1).create_stream(Definition(SPACE, SHARDS, {"kind": "queues", **config}), created)
        self.advance(1000)
        assert created.value is None

    def space(self, node_id: int) -> Stream:
        return space_of(self.broker(node_id).streams.find(SPACE), SPACE)

    def requests(self, node_id: int) -> QueueRequests:  # type: ignore[override]
        return self.nodes[node_id].queues

    def led(self, node_id: int) -> LedQueues:
        return LedQueues(self.broker(node_id), self.requests(node_id).shards)

    def answer(self, begin: Callable[[CallbackResult[Any]], object]) -> Any:
        answer: CallbackResult[Any] = CallbackResult()
        begin(answer)
        for _ in range(100):
            if not answer.there:
                self.deliver_all()
        return answer.value

    def put(self, node_id: int, queue: bytes, *values: bytes) -> None:
        entries = [(queue, NewEntry(value)) for value in values]
        found = self.answer(lambda done: self.requests(node_id).enqueue(self.space(node_id), entries, done))
        assert found.error is None

    def poll(self, node_id: int, request: LeaseRequest) -> CallbackResult[list[Leased] | DuramenError]:
        answer: CallbackResult[list[Leased] | DuramenError] = CallbackResult()
        LeasePoll(self.broker(node_id), self.requests(node_id), self.space(node_id), request, 0, answer).begin()
        self.deliver_all(1000)
        return answer

    def lease(self, node_id: int, queues: Sequence[bytes] = NAMES, most: int = 100) -> list[Leased]:
        found = self.poll(node_id, LeaseRequest(queues, most, 60_000)).value
        assert isinstance(found, list)
        return found

    def settle_leases(self, node_id: int, leased: Sequence[Leased], release_ms: int | None = None) -> Refused:
        entries = [(one.queue, LeasedEntry(one.entry.position, one.lease)) for one in leased]
        refused: Refused = self.answer(
            lambda done: self.led(node_id).acknowledge(self.space(node_id), entries, done, None, release_ms)
        )
        return refused

    def names(self, node_id: int, limit: int) -> list[bytes]:
        """All names, page by page."""
        found, after = list[bytes](), (0, b"")
        while True:
            ask = partial(self.led(node_id).names, self.space(node_id), b"user-", after, limit)
            page, following, lost = self.answer(ask)
            assert not lost
            assert len(page) <= limit
            found += page
            if following is None:
                return found
            after = following

    def drop(self, node_id: int, queue: bytes) -> None:
        space = self.space(node_id)
        named = queue_of(space, queue)
        self.answer(lambda done: self.requests(node_id).submit(space, named, Empty(named, "drop"), done))

    def count(self, node_id: int, queue: bytes) -> tuple[Counted, int]:
        found: tuple[Counted, int] = self.answer(lambda done: self.led(node_id).count(self.space(node_id), queue, done))
        return found


def test_leases_names_and_counts_from_any_node() -> None:
    world = Queues()
    assert {partition_of(name, SHARDS) for name in NAMES} == set(range(SHARDS))
    for number, name in enumerate(NAMES):
        world.put(1 + number % 3, name, b"one", b"two")
    for node_id in NODES:
        for limit in (1, 5, 100):
            assert sorted(world.names(node_id, limit)) == sorted(NAMES)
    leased = world.lease(2)
    assert sorted({one.queue for one in leased}) == sorted(NAMES)
    assert len(leased) == 2 * len(NAMES)
    for node_id in NODES:
        assert world.lease(node_id) == []
        counted, held = world.count(node_id, NAMES[0])
        assert (counted.entries, held) == (2, 2)
    assert world.settle_leases(3, leased[:10]) == {}
    again = world.settle_leases(1, leased[:3])
    assert [type(error) for error in again.values()] == [QueueEntryGone] * 3
    assert world.settle_leases(1, leased[10:], release_ms=0) == {}
    expired = world.settle_leases(2, leased[10:12], release_ms=0)
    assert [type(error) for error in expired.values()] == [QueueLeaseExpired] * 2
    more = world.lease(3)
    assert len(more) == 2 * len(NAMES) - 10
    assert {one.deliveries for one in more} == {2}
    entries = [(one.queue, LeasedEntry(one.entry.position, one.lease)) for one in more]
    extended = world.answer(lambda done: world.led(1).extend(world.space(1), entries, 90_000, done))
    assert extended == {}
    for number, name in enumerate(NAMES):
        world.drop(1 + number % 3, name)
    assert world.names(1, 100) == []


def test_an_answer_of_several_shards_has_so_many_bytes() -> None:
    world, size = Queues(), 1_000
    for name in NAMES:
        world.put(1, name, *[b"x" * size] * 3)
    reads, found = dict.fromkeys(NAMES, FIRST), dict.fromkeys(NAMES, 0)
    while min(found.values()) < 3:
        asked = [Read(name, at) for name, at in reads.items()]
        limits = ReadLimits(1_000, 5 * size, 0)
        pages = world.answer(partial(world.requests(2).retrieve, world.space(2), asked, limits))
        taken = {name: len(page.entries) for name, page in pages.items()}
        assert 0 < sum(taken.values()) <= 5
        reads = {name: page.next for name, page in pages.items()}
        found = {name: found[name] + taken[name] for name in NAMES}
    assert set(found.values()) == {3}
    leased = list[Leased]()
    while some := world.poll(2, LeaseRequest(NAMES, 100, 60_000, max_bytes=4 * size)).value:
        assert isinstance(some, list)
        assert len(some) <= 4
        leased += some
    assert len(leased) == 3 * len(NAMES)


@pytest.mark.parametrize("names", [NAMES, [name for name in NAMES if partition_of(name, SHARDS) == 1]])
def test_an_answer_in_json_has_no_entry_that_does_not_fit(names: list[bytes]) -> None:
    world, most = Queues(), 20_000
    limits = ReadLimits(1_000, most, 0, json_bytes=most)
    for name in names:
        world.put(1, name, *[b"\x01" * 1_000] * 3)
    world.put(1, names[1], b"\x01" * 4_000, b"small")
    reads, found = dict.fromkeys(names, FIRST), dict.fromkeys(names, 0)
    while found[names[0]] < 3 or found[names[-1]] < 3 or found[names[1]] < 3:
        asked = [Read(name, at) for name, at in reads.items()]
        pages = world.answer(partial(world.requests(2).retrieve, world.space(2), asked, limits))
        entries = [entry for page in pages.values() if isinstance(page, Retrieved) for entry in page.entries]
        assert 0 < sum(entry_json_size(b"", entry) for entry in entries) <= most
        for name, page in pages.items():
            if isinstance(page, Retrieved):
                reads[name], found[name] = page.next, found[name] + len(page.entries)
    last = [Read(names[1], reads[names[1]])]
    (page,) = world.answer(partial(world.requests(2).retrieve, world.space(2), last, limits)).values()
    assert isinstance(page, QueueEntryTooLarge)
    assert "takes up to 24308 bytes as JSON, and a response has 20000 at most" in str(page)


def test_a_wait_at_another_node_is_woken_and_leases_nothing_for_nobody() -> None:
    world = Queues()
    queue = next(name for name in NAMES if partition_of(name, SHARDS) == 0)
    gone = world.poll(2, LeaseRequest([queue], 1, 60_000, wait_ms=2_000))
    assert not gone.there
    world.deliver_all(3_000)
    assert gone.value == []
    waiting = world.poll(2, LeaseRequest([queue, b"other"], 5, 60_000, wait_ms=20_000))
    assert not waiting.there
    world.put(3, queue, b"x")
    world.deliver_all(200)
    found = waiting.value
    assert isinstance(found, list)
    (leased,) = found
    assert leased.entry.value == b"x"


def test_a_page_goes_on_where_another_node_leads() -> None:
    world = Queues()
    for name in NAMES:
        world.put(1, name, b"x")
    page, following, _ = world.answer(lambda done: world.led(1).names(world.space(1), b"", (0, b""), 5, done))
    for shard in range(SHARDS):
        world.elect(world.place(SPACE, shard), 1 + (shard + 1) % 3)
    world.advance(1000)
    rest, last, _ = world.answer(lambda done: world.led(2).names(world.space(2), b"", following, 100, done))
    assert last is None
    assert sorted([*page, *rest]) == sorted(NAMES)


def test_a_read_while_the_leader_changes_is_answered_by_the_next_one() -> None:
    world = Queues()
    queue = next(name for name in NAMES if partition_of(name, SHARDS) == 0)
    world.put(1, queue, b"x")
    for leader in (2, 3, 1):
        world.elect(world.place(SPACE, 0), leader)
        answers = list[CallbackResult[Any]]()
        for node_id in NODES:
            for batches in (False, True):
                answers.append(CallbackResult())
                world.requests(node_id).retrieve(
                    world.space(node_id), [Read(queue, "start")], ReadLimits(9, 1 << 20, 0), answers[-1],
                    batches=batches,
                )  # fmt: skip
        world.elect(world.place(SPACE, 0), 1 + leader % 3)
        world.deliver_all(5_000)
        for answer in answers:
            assert not isinstance(answer.value[queue], DuramenError)
            assert not answer.value[queue].is_empty


def test_an_ack_with_a_lease_of_an_earlier_leader_counts() -> None:
    world = Queues()
    queue = next(name for name in NAMES if partition_of(name, SHARDS) == 0)
    world.put(1, queue, b"x", b"y")
    leased = world.lease(3, [queue])
    world.elect(world.place(SPACE, 0), 2)
    world.advance(1000)
    assert world.settle_leases(1, leased[:1]) == {}
    assert list(map(type, world.settle_leases(1, leased[1:], release_ms=0).values())) == [QueueLeaseExpired]
    (left,) = world.lease(1, [queue])
    assert left.entry.value == b"y"


def test_a_request_with_an_id_is_made_once_whoever_leads_by_then() -> None:
    world = Queues()
    queue = next(name for name in NAMES if partition_of(name, SHARDS) == 0)

    def put(node_id: int) -> Any:
        space = world.space(node_id)
        entries, request = [(queue, NewEntry(b"x")), (queue, NewEntry(b"y"))], request_of(space, "once")
        return world.answer(lambda done: world.requests(node_id).enqueue(space, entries, done, request)).positions

    def ack(node_id: int) -> Refused:
        refused: Refused = world.answer(
            lambda done: world.led(node_id).acknowledge(
                world.space(node_id), entries, done, request_of(world.space(node_id), "ack")
            )
        )
        return refused

    before, [leased, _] = put(1), world.lease(1, [queue])
    entries = [(queue, LeasedEntry(leased.entry.position, leased.lease))]
    assert ack(2) == {}
    for leader in (2, 3, 1):
        world.elect(world.place(SPACE, 0), leader)
        world.advance(1000)
        for node_id in NODES:
            assert put(node_id) == before
            assert ack(node_id) == {}
    assert world.count(1, queue)[0].entries == 1


def test_what_one_leader_has_trimmed_comes_back_at_no_other() -> None:
    world = Queues(**{"retention.records": "2"})
    queue = next(name for name in NAMES if partition_of(name, SHARDS) == 0)
    world.put(2, queue, b"1", b"2", b"3", b"4")
    assert world.count(3, queue)[0].entries == 2
    leased = world.lease(2, [queue])
    assert [one.entry.value for one in leased] == [b"3", b"4"]
    assert world.settle_leases(3, leased[1:]) == {}
    world.elect(world.place(SPACE, 0), 2)
    world.advance(1000)
    assert [one.entry.value for one in world.lease(1, [queue])] == [b"3"]


def exported(world: Queues, node_id: int, shards: Sequence[ExportedShard]) -> dict[bytes, int]:
    """How many entries each queue has in an export that is read through a node."""
    found = dict[bytes, int]()
    for shard, one in enumerate(shards):
        after: bytes | None = b""
        while after is not None:
            wanted = RunsRange(b"", b"", after, 1)
            ask = partial(world.nodes[node_id].exports.read, world.space(node_id), shard, one.export, wanted)
            page = read_runs_page(world.answer(ask))
            for name, count in zip(page.names, page.counts, strict=True):
                found[name] = found.get(name, 0) + sum(len(Run(run).offsets) for run in page.runs[:count])
            after = page.after
    return found


def test_an_export_is_opened_and_read_through_any_node() -> None:
    world = Queues()
    for number, name in enumerate(NAMES):
        world.put(1 + number % 3, name, b"one", b"two")
    for node_id in NODES:
        opened = world.answer(partial(world.nodes[node_id].exports.open, world.space(node_id)))
        assert [one.export.partition(".")[0] for one in opened] == ["1", "2", "3"]
        for reader in NODES:
            assert exported(world, reader, opened) == dict.fromkeys(NAMES, 2)


def test_an_export_is_read_where_it_is_although_others_lead_meanwhile() -> None:
    world = Queues()
    for name in NAMES:
        world.put(1, name, b"one")
    opened = world.answer(lambda done: world.nodes[2].exports.open(world.space(2), done))
    for shard in range(SHARDS):
        world.elect(world.place(SPACE, shard), 1)
    world.advance(1000)
    world.put(2, NAMES[0], b"two")
    assert exported(world, 3, opened) == dict.fromkeys(NAMES, 1)
    again = world.answer(lambda done: world.nodes[3].exports.open(world.space(3), done))
    assert {one.export.partition(".")[0] for one in again} == {"1"}
    assert exported(world, 2, again) == {**dict.fromkeys(NAMES, 1), NAMES[0]: 2}


def test_a_shard_whose_leader_changes_while_an_export_is_opened_is_asked_for_again() -> None:
    world = Queues()
    opened = CallbackResult[Any]()
    world.nodes[1].exports.open(world.space(1), opened)
    world.settle()
    world.elect(world.place(SPACE, 2), 2)
    world.deliver_all(2_000)
    assert [one.export.partition(".")[0] for one in opened.value] == ["1", "2", "2"]


def test_a_partial_export_has_an_error_for_each_shard_without_a_leader() -> None:
    world = Queues()
    for name in NAMES:
        world.put(1, name, b"one")
    for shard in (0, 2):
        world.elect(world.place(SPACE, shard), None)
    world.advance(1000)
    opened, refused = CallbackResult[Any](), CallbackResult[Any]()
    world.nodes[2].exports.open(world.space(2), refused)
    world.deliver_all(11_000)
    assert isinstance(refused.error, NotLeader)
    assert re.search(r"shard 0 of .* cannot be exported until a node with its replicas runs", str(refused.error))
    world.nodes[2].exports.open(world.space(2), opened, partial=True)
    world.deliver_all(12_000)
    assert [type(one) for one in opened.value] == [NotLeader, ExportedShard, NotLeader]
    assert "shard 2 of" in str(opened.value[2])
    world.elect(world.place(SPACE, 1), None)
    world.advance(1000)
    none = CallbackResult[Any]()
    world.nodes[2].exports.open(world.space(2), none, partial=True)
    world.deliver_all(13_000)
    assert isinstance(none.error, NotLeader)


def test_a_partial_export_has_an_error_for_a_shard_whose_rows_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(self: Runtime, stream: str, index: int, query: Any, done: Callable[[Any], None], **rest: Any) -> None:
        if index == 1:
            done(StateDamaged("the rows of partition 1 are lost"))
        else:
            intact(self, stream, index, query, done, **rest)

    intact = Runtime.read
    world = Queues()
    for name in NAMES:
        world.put(1, name, b"one")
    for shard in range(SHARDS):
        world.elect(world.place(SPACE, shard), 1)
    world.advance(1000)
    monkeypatch.setattr(Runtime, "read", read)
    for node_id in NODES:
        with pytest.raises(StateDamaged, match="partition 1"):
            world.answer(partial(world.nodes[node_id].exports.open, world.space(node_id)))
        opened = world.answer(partial(world.nodes[node_id].exports.open, world.space(node_id), partial=True))
        assert [type(one) for one in opened] == [ExportedShard, StateDamaged, ExportedShard]
        assert len({one.export for one in opened if isinstance(one, ExportedShard)}) == 1


def test_an_export_that_nobody_has_is_expired() -> None:
    world, wanted = Queues(), RunsRange(b"", b"", b"", 1)
    for export in ("", "x", "1", "1.", "2.gone", "1234567890.x", "-1.x", "٣.x"):
        for shard in (0, 5):
            with pytest.raises(ExportExpired):
                world.answer(partial(world.nodes[1].exports.read, world.space(1), shard, export, wanted))


def test_a_node_that_has_an_export_and_does_not_answer_is_asked_again() -> None:
    world, wanted = Queues(), RunsRange(b"", b"", b"", 1)
    opened = world.answer(partial(world.nodes[1].exports.open, world.space(1)))
    answer = CallbackResult[bytes]()
    world.nodes[1].exports.read(world.space(1), 2, opened[2].export, wanted, answer)
    world.lose()
    assert isinstance(answer.error, NotCoordinator)
    world.closed.add((1, 3))
    with pytest.raises(NotCoordinator):
        world.answer(partial(world.nodes[1].exports.read, world.space(1), 2, opened[2].export, wanted))
    world.closed.clear()
    assert exported(world, 1, opened) == {}


def test_a_shard_without_a_leader_is_refused_in_time_with_what_to_do() -> None:
    world, here = Queues(), 1
    queue = next(name for name in NAMES if partition_of(name, SHARDS) == 1)
    world.put(here, queue, b"one")
    (leased,) = world.lease(here, [queue])
    world.elect(world.place(SPACE, 1), None)
    world.advance(1000)
    space, requests, led = world.space(here), world.requests(here), world.led(here)
    named, limits = queue_of(space, queue), ReadLimits(10, 1 << 20, 0)
    entries = [(queue, LeasedEntry(leased.entry.position, leased.lease))]
    asked: dict[str, Callable[[CallbackResult[Any]], object]] = {
        "enqueue": partial(requests.enqueue, space, [(queue, NewEntry(b"two"))]),
        "purge": partial(requests.submit, space, named, Empty(named, "purge")),
        "retrieve": partial(requests.retrieve, space, [Read(queue, "start")], limits),
        "lease": lambda done: LeasePoll(
            world.broker(here), requests, space, LeaseRequest([queue], 1, 1_000), 0, done
        ).begin(),
        "ack": partial(led.acknowledge, space, entries),
        "extend": partial(led.extend, space, entries, 1_000),
        "names": partial(led.names, space, b"", (1, b""), 10),
        "count": partial(led.count, space, queue),
        "export": partial(world.nodes[here].exports.open, space),
    }  # fmt: skip
    answers = {name: CallbackResult[Any]() for name in asked}
    for name, ask in asked.items():
        ask(answers[name])
    world.deliver_all(11_000)
    for name, answer in answers.items():
        assert answer.there, name
        (found,) = answer.calls[0]
        if isinstance(found, Enqueued):
            found = found.error
        if isinstance(found, dict):
            (found,) = found.values()
        assert isinstance(found, NotLeader), name
        assert str(found).endswith(("retry", "ask again")), name
