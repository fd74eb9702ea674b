"""Groups that go over from the classic protocol to the consumer protocol and back, on a broker, crashes included."""

import errno

import pytest

from duramen.base.errors import (
    DuramenError,
    GroupNotFound,
    InconsistentProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    StorageFailed,
    UnknownMember,
)
from duramen.codec.kafka.membership import decode_assignment, encode_assignment, encode_subscription
from duramen.coordinators.group.coordinator import CommitMember, LeavingMember
from duramen.coordinators.group.kinds import GroupKind
from duramen.groups.consumer_values import ConsumerHeartbeatResult, HeartbeatRequest
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.groups.values import GroupState, JoinRequest, JoinResult, SyncRequest, SyncResult
from duramen.sim.broker import CallbackResult, ManualBroker


def broker(policy: str = "bidirectional") -> ManualBroker:
    """A broker with a stream of three partitions, and that of offsets."""
    hand = ManualBroker({"group.consumer.migration.policy": policy})
    hand.create("a", partitions=3)
    ready: CallbackResult[None] = CallbackResult()
    hand.broker.internal_streams.ensure_offsets(ready)
    hand.settle()
    return hand


@pytest.fixture
def hand() -> ManualBroker:
    """The same with the default policy."""
    return broker()


def join(
    hand: ManualBroker, member_id: str = "", *, protocol_type: str = "consumer", id_required: bool = False,
    instance: str | None = None, topics: tuple[str, ...] = ("a",),
) -> CallbackResult[JoinResult]:  # fmt: skip
    """A JoinGroup."""
    answer: CallbackResult[JoinResult] = CallbackResult()
    request = JoinRequest(
        member_id, instance, hand.broker.groups.new_member_id("k"), id_required, "client", "/host", 10_000, 60_000,
        protocol_type, [("range", encode_subscription(topics))],
    )  # fmt: skip
    hand.broker.groups.join("g", request, answer)
    hand.settle()
    return answer


def sync(
    hand: ManualBroker, joined: JoinResult, assigned: dict[str, list[int]] | None = None
) -> CallbackResult[SyncResult]:
    """A SyncGroup, as a leader who takes everything if `assigned` says so."""
    answer: CallbackResult[SyncResult] = CallbackResult()
    brought = [] if assigned is None else [(joined.member_id, encode_assignment(assigned))]
    hand.broker.groups.sync("g", SyncRequest(joined.member_id, None, joined.generation, None, None, brought), answer)
    hand.settle()
    return answer


def classic(hand: ManualBroker) -> JoinResult:
    """A classic member that has everything."""
    joined = join(hand).value
    assert sync(hand, joined, {"a": [0, 1, 2]}).value.assignment
    return joined


def beat(hand: ManualBroker, member: JoinResult) -> BaseException | None:
    """A Heartbeat, and what was answered."""
    answer: CallbackResult[None] = CallbackResult()
    hand.broker.groups.heartbeat("g", CommitMember(member.member_id, None, member.generation), answer)
    hand.settle()
    return answer.error


def commit(hand: ManualBroker, member: JoinResult) -> list[DuramenError | None]:
    """A member of the classic protocol commits an offset."""
    committed: CallbackResult[list[DuramenError | None]] = CallbackResult()
    offset = (OffsetKey("g", "a", 0), CommittedOffset(1, 1, "", 0))
    hand.broker.groups.commit("g", CommitMember(member.member_id, None, member.generation), [offset], committed)
    hand.settle()
    return committed.value


def consumer(hand: ManualBroker, epoch: int = 0, name: str = "new") -> CallbackResult[ConsumerHeartbeatResult]:
    """A heartbeat of a member of the consumer protocol, which joins with epoch 0."""
    request = HeartbeatRequest(name, epoch, client_id="client", client_host="/host")
    if epoch == 0:
        request = request._replace(rebalance_timeout_ms=60_000, topics=frozenset({"a"}), owned=frozenset())
    answer: CallbackResult[ConsumerHeartbeatResult] = CallbackResult()
    hand.broker.groups.consumer_heartbeat("g", request, answer)
    hand.settle()
    return answer


def partitions(answer: SyncResult) -> list[int]:
    """What an assignment gives of the stream."""
    return decode_assignment(answer.assignment).get("a", [])


def listed(hand: ManualBroker) -> list[tuple[str, str, GroupKind]]:
    """Every group with its state and kind."""
    return [(one.group_id, one.state.value, one.kind) for one in hand.broker.groups.listing()]


def shared(hand: ManualBroker) -> tuple[JoinResult, int]:
    """A group of both: a classic member with two partitions, and a new one with one and its epoch."""
    old = classic(hand)
    joined = consumer(hand).value
    assert joined.assigned == frozenset()
    assert isinstance(beat(hand, old), RebalanceInProgress)
    again = join(hand, old.member_id).value
    assert (again.leader_id, again.members, again.protocol) == ("", (), "range")
    assert partitions(sync(hand, again).value) == [0, 1]
    assert beat(hand, again) is None
    told = consumer(hand, joined.epoch).value
    assert told.assigned == frozenset({(hand.broker.streams.get("a").id, 2)})
    return again, told.epoch


@pytest.mark.parametrize("seed", [None, 1])
def test_a_group_goes_over_and_its_classic_members_go_on(hand: ManualBroker, seed: int | None) -> None:
    old, epoch = shared(hand)
    assert listed(hand) == [("g", "Stable", GroupKind.CONSUMER)]
    if seed is not None:
        hand.crash(seed)
        assert listed(hand) == [("g", "Stable", GroupKind.CONSUMER)]
    assert beat(hand, old) is None
    assert consumer(hand, epoch).value.epoch == epoch
    assert commit(hand, old) == [None]
    members = hand.broker.groups.consumer.get("g").table.members
    assert {name: member.classic is None for name, member in members.items()} == {old.member_id: False, "new": True}


@pytest.mark.parametrize("seed", [None, 1])
def test_the_last_new_member_that_goes_leaves_a_classic_group(hand: ManualBroker, seed: int | None) -> None:
    old, _ = shared(hand)
    assert consumer(hand, -1).value.epoch == -1
    if seed is not None:
        hand.crash(seed)
    assert listed(hand) == [("g", "PreparingRebalance", GroupKind.CLASSIC)]
    assert isinstance(beat(hand, old), RebalanceInProgress), "it goes on with what it has until it joins again"
    assert commit(hand, old) == [None]
    again = join(hand, old.member_id).value
    assert again.leader_id == old.member_id
    assert again.generation > old.generation
    assert partitions(sync(hand, again, {"a": [0, 1, 2]}).value) == [0, 1, 2]
    hand.crash(seed)
    assert listed(hand) == [("g", "Stable", GroupKind.CLASSIC)]
    assert beat(hand, again) is None
    assert list(hand.broker.offsets.records_of("g")) == []


def test_the_session_of_the_last_new_member_ends(hand: ManualBroker) -> None:
    old, _ = shared(hand)
    for _ in range(9):
        hand.advance(5_000)
        beat(hand, old)
    assert listed(hand) == [("g", "PreparingRebalance", GroupKind.CLASSIC)]
    assert isinstance(beat(hand, old), RebalanceInProgress)
    assert commit(hand, old) == [None]


def test_a_classic_member_that_is_called_and_does_not_come_is_given_up(hand: ManualBroker) -> None:
    old = classic(hand)
    joined = consumer(hand).value
    epoch = joined.epoch
    for _ in range(8):
        hand.advance(9_000)
        beat(hand, old)
        epoch = consumer(hand, epoch).value.epoch
    assert isinstance(beat(hand, old), UnknownMember)
    assert len(hand.broker.groups.consumer.get("g").table.members["new"].assigned) == 3


def test_a_classic_member_leaves_a_group_of_both(hand: ManualBroker) -> None:
    old, epoch = shared(hand)
    left: CallbackResult[list[DuramenError | None]] = CallbackResult()
    hand.broker.groups.leave("g", [LeavingMember(old.member_id, None), LeavingMember("nobody", None)], left)
    hand.settle()
    assert [type(result) for result in left.value] == [type(None), UnknownMember]
    assert len(consumer(hand, epoch).value.assigned or ()) == 3
    assert isinstance(beat(hand, old), UnknownMember)


def test_classic_members_join_a_group_of_the_consumer_protocol(hand: ManualBroker) -> None:
    epoch = consumer(hand).value.epoch
    asked = join(hand, id_required=True)
    assert isinstance(asked.error, MemberIdRequired)
    joined = join(hand, asked.error.member_id).value
    assert partitions(sync(hand, joined).value) == []
    shrunk = consumer(hand, epoch).value
    assert len(shrunk.assigned or ()) == 2
    request = HeartbeatRequest("new", shrunk.epoch, client_id="client", client_host="/host", owned=shrunk.assigned)
    hand.broker.groups.consumer_heartbeat("g", request, CallbackResult())
    hand.settle()
    assert isinstance(beat(hand, joined), RebalanceInProgress)
    again = join(hand, joined.member_id).value
    assert len(partitions(sync(hand, again).value)) == 1
    other = JoinRequest("", None, "x", False, "c", "/h", 10_000, 60_000, "consumer", [("other", b"\0\0\0\0\0\0")])
    refused: CallbackResult[JoinResult] = CallbackResult()
    hand.broker.groups.join("g", other, refused)
    assert isinstance(refused.error, InconsistentProtocol)


def test_a_group_that_is_no_one_of_consumers_stays_what_it_is(hand: ManualBroker) -> None:
    joined = join(hand, protocol_type="connect").value
    sync(hand, joined, {})
    assert isinstance(consumer(hand).error, GroupNotFound)
    assert listed(hand) == [("g", "Stable", GroupKind.CLASSIC)]
    assert beat(hand, joined) is None


@pytest.mark.parametrize(
    ("policy", "goes_over", "comes_back"),
    [("upgrade", True, False), ("downgrade", False, None), ("disabled", False, None)],
)
def test_the_policy_says_which_ways_are_open(policy: str, goes_over: bool, comes_back: bool | None) -> None:
    hand = broker(policy)
    old = classic(hand)
    if not goes_over:
        assert isinstance(consumer(hand).error, GroupNotFound)
        assert beat(hand, old) is None
        return
    assert consumer(hand).value.epoch
    assert consumer(hand, -1).value.epoch == -1
    kinds = [kind for _, _, kind in listed(hand)]
    assert kinds == [GroupKind.CLASSIC if comes_back else GroupKind.CONSUMER]


def test_no_classic_member_joins_where_no_way_is_open() -> None:
    hand = broker("disabled")
    assert consumer(hand).value.epoch == 2
    assert isinstance(join(hand).error, InconsistentProtocol)


def test_a_group_without_members_takes_the_kind_of_the_first_that_joins(hand: ManualBroker) -> None:
    joined = consumer(hand).value
    consumer(hand, -1)
    assert joined.epoch == 2
    old = classic(hand)
    assert listed(hand) == [("g", "Stable", GroupKind.CLASSIC)]
    left: CallbackResult[list[DuramenError | None]] = CallbackResult()
    hand.broker.groups.leave("g", [LeavingMember(old.member_id, None)], left)
    hand.settle()
    assert hand.broker.groups.describe("g").state is GroupState.EMPTY
    assert len(consumer(hand).value.assigned or ()) == 3
    hand.crash()
    assert listed(hand) == [("g", "Stable", GroupKind.CONSUMER)]


def test_who_waits_in_a_rebalance_when_the_group_goes_over_joins_again(hand: ManualBroker) -> None:
    old = classic(hand)
    waiting: CallbackResult[JoinResult] = CallbackResult()
    request = JoinRequest(
        "", None, "second", False, "c", "/h", 10_000, 60_000, "consumer", [("range", encode_subscription(["a"]))]
    )
    hand.broker.groups.join("g", request, waiting)
    hand.settle()
    assert not waiting.there, "it waits for the first to join again"
    consumer(hand)
    assert isinstance(waiting.error, RebalanceInProgress)
    assert isinstance(beat(hand, old), RebalanceInProgress)


@pytest.mark.parametrize("back", [False, True])
def test_a_way_that_cannot_be_stored_was_not_gone(hand: ManualBroker, back: bool) -> None:
    old, _ = shared(hand) if back else (classic(hand), 0)

    def fail(call: str, _: str, size: int) -> int:
        if call == "sync":
            raise OSError(errno.EIO, "the disk")
        return size

    hand.files.interfere = fail
    assert isinstance(consumer(hand, -1 if back else 0).error, StorageFailed)
    assert listed(hand) == [("g", "Stable", GroupKind.CONSUMER if back else GroupKind.CLASSIC)]
    assert beat(hand, old) is None


def test_a_static_member_of_the_consumer_protocol_is_replaced_by_a_classic_one(hand: ManualBroker) -> None:
    request = HeartbeatRequest(
        "new", 0, "i", client_id="client", rebalance_timeout_ms=60_000, topics=frozenset({"a"}), owned=frozenset()
    )
    hand.broker.groups.consumer_heartbeat("g", request, CallbackResult())
    hand.settle()
    joined = join(hand, instance="i").value
    assert joined.member_id != "new"
    assert listed(hand) == [("g", "PreparingRebalance", GroupKind.CLASSIC)]
    again = join(hand, joined.member_id, instance="i").value
    assert again.leader_id == again.member_id
