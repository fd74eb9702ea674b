"""Records that come to a node which does not lead: they go to those who do, once, and each one's fate is told."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import pytest
from tests.service.forwarding.world import ROOM_BYTES, WIRE, WITHIN_MS, World, values_of

from duramen.base.errors import (
    DuramenError,
    NodeBusy,
    NodeStopping,
    NotCoordinator,
    NotLeader,
    OffsetOutOfRange,
    OutcomeUnknown,
)
from duramen.base.positions import At, Last, Position
from duramen.broker.partition import LATEST
from duramen.service.forwarded_requests import (
    APPEND,
    READ,
    AppendRequest,
    AppendResponse,
    AppendResult,
    Bytes,
    DeleteRecordsResponse,
    Manage,
    Managed,
    Read,
)
from duramen.service.forwarding.local import LocalSlice
from duramen.service.forwarding.partition_requests import Managing
from duramen.sim.broker import CallbackResult


@pytest.fixture
def world() -> World:
    return World()


def error_of(fate: AppendResult) -> type[DuramenError] | None:
    return None if fate.error is None else type(fate.error)


# -- appends ----------------------------------------------------------------------------------------


def test_each_leader_is_asked_once_and_fates_come_in_the_order_of_the_batches(world: World) -> None:
    wanted = [(2, b"a"), (0, b"b"), (1, b"c"), (2, b"d"), (0, b"e")]
    answer = world.append(1, *(world.batch(1, index, value) for index, value in wanted))
    assert [(sender, receiver) for sender, receiver, _ in world.requests()] == [(1, 3), (1, 2)]
    assert not answer.calls
    world.deliver_all()
    assert answer.value == [AppendResult(0), AppendResult(0), AppendResult(0), AppendResult(1), AppendResult(1)]
    assert [world.values(3, index) for index in range(3)] == [[b"b", b"e"], [b"c"], [b"a", b"d"]]
    assert world.rooms[1].held_bytes == world.rooms[2].held_bytes == world.rooms[3].held_bytes == 0


def test_another_leader_is_asked_where_the_first_one_leads_no_more(world: World) -> None:
    answer = world.append(1, world.batch(1, 2, b"a"), world.batch(1, 2, b"b"))
    world.lead(2, 2)
    world.deliver()
    assert not answer.calls
    world.deliver_all(within_ms=1000)
    assert [receiver for _, receiver, _ in world.requests()] == [3, 2]
    assert answer.value == [AppendResult(0), AppendResult(1)]
    assert world.values(3, 2) == [b"a", b"b"]


def test_this_node_itself_where_it_leads_meanwhile(world: World) -> None:
    answer = world.append(1, world.batch(1, 2, b"a"))
    world.lead(2, 1)
    world.deliver_all(within_ms=1000)
    assert answer.value == [AppendResult(0)]
    assert len(world.sent) == 1


def test_a_partition_without_leader_waits_for_one(world: World) -> None:
    world.lead(1, None)
    answer = world.append(1, world.batch(1, 1, b"a"))
    world.advance(1000)
    assert not world.sent
    world.lead(1, 3)
    world.deliver_all(within_ms=1000)
    assert answer.value == [AppendResult(0)]


def test_too_late_nothing_was_stored(world: World) -> None:
    world.lead(1, None)
    world.closed.add((1, 3))
    answer = world.append(1, world.batch(1, 1, b"a"), world.batch(1, 2, b"b"), world.batch(1, 0, b"c"))
    world.advance(WITHIN_MS + 100)
    first, second, third = answer.value
    assert (error_of(first), first.unknown) == (error_of(second), second.unknown) == (NotLeader, False)
    assert "no connection to node 3" in str(second.error)
    assert third == AppendResult(0)
    assert not world.sent


@pytest.mark.parametrize("arrives", [True, False])
def test_a_lost_answer_is_said_and_nothing_is_sent_again(world: World, arrives: bool) -> None:
    answer = world.append(1, world.batch(1, 2, b"a"), world.batch(1, 0, b"b"))
    if arrives:
        world.deliver(answered=False)
    else:
        world.lose()
    lost, kept = answer.value
    assert (error_of(lost), lost.unknown, kept) == (OutcomeUnknown, True, AppendResult(0))
    world.deliver_all(within_ms=WITHIN_MS)
    assert len(world.sent) == 1
    assert world.values(3, 2) == ([b"a"] if arrives else [])


def test_an_answer_that_does_not_come_in_time(world: World) -> None:
    answer = world.append(1, world.batch(1, 2, b"a"))
    assert world.rooms[1].held_bytes > 0
    world.advance(WITHIN_MS + 100)
    assert [(error_of(fate), fate.unknown) for fate in answer.value] == [(OutcomeUnknown, True)]
    assert world.rooms[1].held_bytes == 0
    world.deliver_all()  # as late as it comes, it is no second answer
    assert world.rooms[1].held_bytes == 0


@pytest.mark.parametrize(
    "body", [b"\xc1", WIRE.encode_response(APPEND, AppendResponse(())), WIRE.encode_response(READ, Bytes(0, 0, b""))]
)
def test_an_answer_that_is_none(world: World, body: bytes) -> None:
    answer = world.append(1, world.batch(1, 2, b"a"))
    world.under_way.pop().done(body)
    assert [(error_of(fate), fate.unknown) for fate in answer.value] == [(OutcomeUnknown, True)]


def test_a_node_that_is_not_ready_is_asked_again(world: World) -> None:
    answer = world.append(1, world.batch(1, 2, b"a"))
    world.under_way.pop().done(b"")
    world.deliver_all(within_ms=1000)
    assert answer.value == [AppendResult(0)]


def test_a_leader_that_stops_is_asked_no_more(world: World) -> None:
    answer = world.append(1, world.batch(1, 2, b"a"))
    world.under_way.pop().done(
        WIRE.encode_response(APPEND, AppendResponse.of([AppendResult(-1, NodeStopping("it stops"))]))
    )
    world.lead(2, 2)
    world.deliver_all(within_ms=1000)
    assert answer.value == [AppendResult(0)]
    assert [receiver for _, receiver, _ in world.requests()] == [3, 2]


def test_what_was_appended_in_an_epoch_that_ended_is_not_sent_to_the_next_leader(world: World) -> None:
    answer = world.append(2, world.batch(2, 2, b"before"))
    world.deliver_all()
    world.cut = {1}  # what is appended now is not on all disks in sync
    answer = world.append(2, world.batch(2, 2, b"a"))
    world.deliver()
    assert not answer.calls
    world.cut = set()
    world.lead(2, 2)
    world.deliver_all(within_ms=WITHIN_MS)
    (fate,) = answer.value
    assert (error_of(fate), fate.unknown) == (OutcomeUnknown, True)
    assert len(world.sent) == 2
    assert world.values(2, 2).count(b"a") <= 1


def test_who_is_asked_asks_nobody(world: World) -> None:
    stream_id = world.place("s").stream_id.bytes
    said: list[bytes] = []
    append = AppendRequest(stream_id, [(2, world.batch(1, 2, b"a").content)])
    world.nodes[1].handle_request(WIRE.encode_request(APPEND, append), said.append)
    world.nodes[1].handle_request(WIRE.encode_request(READ, Read(stream_id, 2, ("end", 0), 1, 0)), said.append)
    world.advance(WITHIN_MS)
    appended = WIRE.decode_response(APPEND, said[0])
    read = WIRE.decode_response(READ, said[1])
    assert isinstance(appended, AppendResponse)
    assert [error_of(fate) for fate in appended.read()] == [NotLeader]
    assert isinstance(read, NotLeader)
    assert not world.sent


def test_what_waits_for_others_takes_a_bounded_amount_of_memory(world: World) -> None:
    value = b"v" * (ROOM_BYTES // 3)
    answers = [world.append(1, world.batch(1, 2, value)) for _ in range(3)]
    assert [len(answer.calls) for answer in answers] == [0, 0, 1]
    assert [(error_of(fate), fate.unknown) for fate in answers[2].value] == [(NodeBusy, False)]
    world.deliver_all()
    assert [answer.value for answer in answers[:2]] == [[AppendResult(0)], [AppendResult(1)]]
    assert world.rooms[1].held_bytes == 0


def test_what_others_send_takes_a_bounded_amount_of_memory(world: World) -> None:
    answer = world.append(1, world.batch(1, 2, b"v" * 1000))
    assert world.rooms[3].take(ROOM_BYTES - 100)
    world.deliver()
    assert [(error_of(fate), fate.unknown) for fate in answer.value] == [(NodeBusy, False)]
    assert world.rooms[3].held_bytes == ROOM_BYTES - 100
    assert world.values(3, 2) == []


def test_streams_of_the_brokers_own_and_partitions_that_are_not_there(world: World) -> None:
    world.ensure_offsets()
    own = world.broker(1).streams.get("__consumer_offsets").id.bytes
    said: list[bytes] = []
    batch = world.batch(1, 0, b"a").content
    for stream_id, index in ((own, 0), (bytes(16), 0), (world.place("s").stream_id.bytes, 7)):
        world.nodes[1].handle_request(
            WIRE.encode_request(APPEND, AppendRequest(stream_id, [(index, batch)])), said.append
        )
    answers: list[object] = []
    for body in said:
        found = WIRE.decode_response(APPEND, body)
        answers.append(found)
    assert "the broker's own" in str(answers[0])
    assert isinstance(answers[1], NotLeader)
    assert isinstance(answers[2], AppendResponse)
    assert [error_of(fate) for fate in answers[2].read()] == [NotLeader]


def test_who_waits_is_told_that_the_node_stops(world: World) -> None:
    world.lead(1, None)
    answer = world.append(1, world.batch(1, 1, b"a"), world.batch(1, 2, b"b"))
    read = world.read(1, 1, "end")
    world.nodes[1].stop()
    refused, unknown = answer.value
    assert (error_of(refused), refused.unknown) == (NodeStopping, False)
    assert (error_of(unknown), unknown.unknown) == (OutcomeUnknown, True)
    assert isinstance(read.error, NodeStopping)


# -- reads ------------------------------------------------------------------------------------------


def stored(world: World, index: int, *values: bytes) -> None:
    answer = world.append(index + 1, *(world.batch(index + 1, index, value) for value in values))
    world.advance(100)
    assert [fate.error for fate in answer.value] == [None] * len(values)


def test_what_a_node_has_it_reads_itself_and_asks_the_leader_for_the_rest(world: World) -> None:
    stored(world, 2, b"a", b"b", b"c")
    world.advance(1000)
    own: list[Position] = ["start", At(0), At(2)]
    for position in own:
        found = world.read(1, 2, position).value
        assert isinstance(found, LocalSlice)
        assert found.content is not None
    assert not world.sent
    behind: list[tuple[Position, int]] = [("end", 3), (At(3), 3), (Last(2), 1)]
    for position, first in behind:
        answer = world.read(1, 2, position)
        world.deliver_all()
        found = answer.value
        assert isinstance(found, Bytes)
        assert (found.offset, found.high_watermark, values_of(found.data)) == (first, 3, [b"a", b"b", b"c"][first:])
    assert len(world.sent) == 3
    beyond = world.read(1, 2, At(9))
    world.deliver_all()
    assert isinstance(beyond.error, OffsetOutOfRange)


def test_a_read_waits_at_the_leader(world: World) -> None:
    world.only(2, 3)
    answer = world.read(1, 2, "start", max_wait_ms=10_000)
    world.deliver()
    assert not answer.calls
    world.append(3, world.batch(3, 2, b"at last"))
    world.advance(100)
    found = answer.value
    assert isinstance(found, Bytes)
    assert values_of(found.data) == [b"at last"]


def test_a_read_goes_on_at_the_next_leader(world: World) -> None:
    answer = world.read(1, 2, "end", max_wait_ms=20_000)
    world.advance(3000)
    world.lead(2, 2)
    world.lose()
    world.advance(1000)
    (first, second) = [request for _, _, request in world.requests()]
    assert isinstance(first, Read)
    assert isinstance(second, Read)
    assert first.max_wait_ms == 20_000
    assert 16_000 <= second.max_wait_ms < 17_100
    world.deliver()
    stored(world, 1)
    world.append(2, world.batch(2, 2, b"x"))
    world.advance(100)
    found = answer.value
    assert isinstance(found, Bytes)
    assert values_of(found.data) == [b"x"]


def test_a_leader_that_is_not_found(world: World) -> None:
    world.lead(2, None)
    answer = world.read(1, 2, "end")
    world.advance(10_100)
    assert isinstance(answer.error, NotLeader)
    world.lead(2, 3)
    silent = world.read(1, 2, "end")
    world.advance(10_100)
    assert isinstance(silent.error, NotLeader)
    assert "node 3 has not answered" in str(silent.error)


def test_a_read_that_nobody_waits_for_any_more(world: World) -> None:
    answer: CallbackResult[object] = CallbackResult()
    cancel = world.nodes[1].read(world.partition(1, 2), "end", 100, 1000, answer)
    cancel()
    world.deliver_all(within_ms=12_000)
    assert not answer.calls


def test_only_so_many_reads_of_others_wait(world: World) -> None:
    answers = [world.read(1, 2, "end", max_wait_ms=10_000) for _ in range(51)]
    while world.under_way:
        world.deliver()
    assert [len(answer.calls) for answer in answers] == [0] * 50 + [1]


# -- deletions --------------------------------------------------------------------------------------


def test_records_are_deleted_by_the_leader(world: World) -> None:
    stored(world, 2, b"a", b"b", b"c")
    answers: list[CallbackResult[DeleteRecordsResponse | DuramenError | OSError]] = [CallbackResult() for _ in range(3)]
    world.nodes[3].delete(world.partition(3, 2), 1, answers[0])
    world.settle()
    assert (answers[0].value, world.sent) == (DeleteRecordsResponse(1), [])
    world.nodes[1].delete(world.partition(1, 2), 2, answers[1])
    world.lose()  # that does no harm the second time
    world.deliver_all(within_ms=1000)
    assert (answers[1].value, len(world.sent)) == (DeleteRecordsResponse(2), 2)
    world.nodes[1].delete(world.partition(1, 2), LATEST, answers[2])
    world.lose()  # this might
    world.deliver_all(within_ms=1000)
    assert isinstance(answers[2].error, OutcomeUnknown)
    assert len(world.sent) == 3


# -- groups -----------------------------------------------------------------------------------------


Told = Callable[[Managed | DuramenError], None]


class Coordinators:
    """Does what is wanted of groups on each node, when the test says so."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.wanted: list[tuple[int, Told]] = []
        for node_id, node in world.nodes.items():
            node.serve_groups(partial(self._manage, node_id))

    def _manage(self, node_id: int, _: Manage, done: Told) -> None:
        self.wanted.append((node_id, done))

    def ask(self, node_id: int, what: Literal["show", "delete"]) -> "CallbackResult[Managed | DuramenError | OSError]":
        """Ask a node about a group whose offsets are stored in partition 2."""
        answer: CallbackResult[Managed | DuramenError | OSError] = CallbackResult()
        errand = Managing(self._world.partition(node_id, 2), Manage(what, "g", b""), partial(self._begin, node_id))
        self._world.nodes[node_id].manage(errand, answer)
        return answer

    def _begin(self, node_id: int, done: Callable[[Managed | DuramenError | OSError], None]) -> Callable[[], None]:
        self.wanted.append((node_id, done))
        return lambda: None


def test_a_group_is_the_coordinators_wherever_it_is_asked_for(world: World) -> None:
    coordinators = Coordinators(world)
    answers = [coordinators.ask(3, "delete"), coordinators.ask(1, "delete")]
    world.deliver()
    assert [node_id for node_id, _ in coordinators.wanted] == [3, 3]
    for _, done in coordinators.wanted:
        done(Managed(b""))
    assert [answer.value for answer in answers] == [Managed(b"")] * 2


def test_only_what_changes_nothing_is_asked_for_again(world: World) -> None:
    coordinators = Coordinators(world)
    shown, deleted = coordinators.ask(1, "show"), coordinators.ask(1, "delete")
    world.deliver()
    world.deliver()
    for _, done in coordinators.wanted:
        done(NotCoordinator("no more"))
    assert isinstance(deleted.error, NotCoordinator)
    assert not shown.calls
    world.lead(2, 2)
    world.deliver_all(within_ms=1000)
    node_id, done = coordinators.wanted[-1]
    done(Managed(b"{}"))
    assert (node_id, len(coordinators.wanted), shown.value) == (2, 3, Managed(b"{}"))
    lost = coordinators.ask(1, "delete")
    world.lose()
    assert isinstance(lost.error, OutcomeUnknown)
