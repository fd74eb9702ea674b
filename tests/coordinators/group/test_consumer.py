"""Groups of the consumer protocol on a broker: durable before they are answered, restored, listed, deleted."""

import errno
from uuid import UUID

import pytest

from duramen.base.errors import (
    AssignorUnknown,
    ConfigInvalid,
    DuramenError,
    GroupFull,
    GroupIdInvalid,
    GroupNotEmpty,
    GroupNotFound,
    GroupSubscribed,
    IllegalGeneration,
    InconsistentProtocol,
    StaleMemberEpoch,
    StorageFailed,
    UnknownMember,
)
from duramen.codec.kafka.membership import decode_assignment
from duramen.coordinators.group.coordinator import CommitMember
from duramen.coordinators.group.kinds import GroupKind
from duramen.groups.consumer_records import Key, RecordKind, encode_key
from duramen.groups.consumer_values import ConsumerHeartbeatResult, ConsumerState, HeartbeatRequest
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.groups.values import JoinRequest, JoinResult
from duramen.sim.broker import CallbackResult, ManualBroker

SIMPLE = CommitMember("", None, -1)


@pytest.fixture
def groups(hand: ManualBroker) -> ManualBroker:
    """A broker whose stream of offsets is there."""
    ready: CallbackResult[None] = CallbackResult()
    hand.broker.internal_streams.ensure_offsets(ready)
    hand.settle()
    return hand


def beat(hand: ManualBroker, group: str, request: HeartbeatRequest) -> CallbackResult[ConsumerHeartbeatResult]:
    """A heartbeat; nothing is durable yet."""
    answer: CallbackResult[ConsumerHeartbeatResult] = CallbackResult()
    hand.broker.groups.consumer_heartbeat(group, request, answer)
    return answer


def joining(name: str = "m", *topics: str, pattern: str | None = None) -> HeartbeatRequest:
    """A request to join."""
    return HeartbeatRequest(
        name, 0, client_id="client", client_host="/host", rebalance_timeout_ms=60_000,
        topics=frozenset(topics or ("a",)), pattern=pattern, owned=frozenset(),
    )  # fmt: skip


def living(name: str, epoch: int) -> HeartbeatRequest:
    """A heartbeat that says nothing new."""
    return HeartbeatRequest(name, epoch, client_id="client", client_host="/host")


def join(
    hand: ManualBroker, group: str, name: str = "m", *topics: str, pattern: str | None = None
) -> ConsumerHeartbeatResult:
    """A member that has joined."""
    answer = beat(hand, group, joining(name, *topics, pattern=pattern))
    hand.settle()
    return answer.value


def commit(hand: ManualBroker, group: str, who: CommitMember, offset: int) -> BaseException | None:
    """Commit an offset of partition 0; what kept it from being done."""
    answer: CallbackResult[list[DuramenError | None]] = CallbackResult()
    wanted = [(OffsetKey(group, "a", 0), CommittedOffset(offset, 1, "", hand.clock.wall_ms()))]
    hand.broker.groups.commit(group, who, wanted, answer)
    hand.settle()
    return answer.error or answer.value[0]


def listed(hand: ManualBroker) -> dict[str, tuple[str, GroupKind]]:
    """Every group with its state and kind."""
    return {one.group_id: (one.state.value, one.kind) for one in hand.broker.groups.listing()}


def delete(hand: ManualBroker, group: str) -> BaseException | None:
    """Delete a group, and what was answered."""
    answer: CallbackResult[None] = CallbackResult()
    hand.broker.groups.delete(group, answer)
    hand.settle()
    return answer.error


def test_what_a_member_is_told_is_durable(groups: ManualBroker) -> None:
    first = beat(groups, "g", joining())
    again = beat(groups, "g", living("m", 2))
    assert not first.there
    assert not again.there, "it would tell of an epoch that a crash may take back"
    groups.settle()
    assert len(first.value.assigned or ()) == 3
    assert again.value.assigned is None
    assert beat(groups, "g", living("m", 2)).there, "nothing has changed: nothing is stored"


@pytest.mark.parametrize("seed", range(3))
def test_members_keep_their_epochs_and_partitions_over_a_crash(groups: ManualBroker, seed: int) -> None:
    before = join(groups, "g")
    groups.crash(seed)
    assert listed(groups) == {"g": ("Stable", GroupKind.CONSUMER)}
    answer = beat(groups, "g", living("m", before.epoch))
    groups.settle()
    assert answer.value.epoch == before.epoch
    assert commit(groups, "g", CommitMember("m", None, before.epoch, knows_epochs=True), 5) is None
    groups.advance(45_000)
    assert listed(groups) == {"g": ("Empty", GroupKind.CONSUMER)}
    groups.crash(seed)
    assert listed(groups) == {"g": ("Empty", GroupKind.CONSUMER)}


def test_a_group_that_cannot_be_stored_is_as_it_was(groups: ManualBroker) -> None:
    join(groups, "g")

    def fail(call: str, _: str, size: int) -> int:
        if call == "sync":
            raise OSError(errno.EIO, "the disk")
        return size

    groups.files.interfere = fail
    answers = [beat(groups, "g", joining(f"n{number}")) for number in range(3)]
    groups.settle()
    assert all(isinstance(answer.error, StorageFailed) for answer in answers)
    assert beat(groups, "g", living("m", 2)).value.epoch == 2
    assert len(groups.broker.groups.describe("g").snapshot.members) == 1


def test_a_record_that_cannot_be_read_is_left_out_and_said(groups: ManualBroker) -> None:
    join(groups, "g")
    stored: CallbackResult[None] = CallbackResult()
    broken = encode_key(Key(RecordKind.TARGET, "g", "m"))
    groups.broker.offsets.store_records("g", [(broken, b"\0\0\xff\xff")], stored)
    groups.settle()
    groups.crash()
    assert listed(groups) == {"g": ("Stable", GroupKind.CONSUMER)}
    (said,) = groups.reports
    assert said.startswith("a record of group g is skipped: ")
    answer = beat(groups, "g", living("m", 2))
    groups.settle()
    assert answer.value.epoch == 2


def test_a_member_that_wants_too_much_is_refused(groups: ManualBroker) -> None:
    names = frozenset(f"{number:0250}" for number in range(5000))
    assert isinstance(beat(groups, "g", joining()._replace(topics=names)).error, GroupFull)
    epoch = join(groups, "g").epoch
    assert isinstance(beat(groups, "g", living("m", epoch)._replace(topics=names)).error, GroupFull)
    assert beat(groups, "g", living("m", epoch)).value.epoch == epoch


def test_who_may_commit_and_read_offsets(groups: ManualBroker) -> None:
    epoch = join(groups, "g").epoch
    assert isinstance(commit(groups, "g", SIMPLE, 1), UnknownMember)
    assert isinstance(commit(groups, "g", CommitMember("m", None, 9, knows_epochs=True), 1), StaleMemberEpoch)
    assert isinstance(commit(groups, "nobody", CommitMember("m", None, 9, knows_epochs=True), 1), GroupNotFound)
    assert commit(groups, "g", CommitMember("m", None, epoch, knows_epochs=True), 1) is None
    groups.broker.groups.check_transactional("g", CommitMember("m", None, epoch))
    with pytest.raises(IllegalGeneration):
        groups.broker.groups.check_transactional("g", CommitMember("m", None, 9))
    groups.broker.groups.check_fetch("g", "m", epoch)
    groups.broker.groups.check_fetch("g", None, -1)
    groups.broker.groups.check_fetch("nobody", "m", 3)
    with pytest.raises(StaleMemberEpoch):
        groups.broker.groups.check_fetch("g", "m", epoch + 1)


def test_a_group_id_is_of_one_kind(groups: ManualBroker) -> None:
    join(groups, "g")
    answer: CallbackResult[JoinResult] = CallbackResult()
    request = JoinRequest("", None, "new", False, "c", "/h", 10_000, 60_000, "other", [("range", b"")])
    groups.broker.groups.join("g", request, answer)
    assert isinstance(answer.error, InconsistentProtocol)
    assert isinstance(beat(groups, "nobody", living("m", 3)).error, GroupNotFound)
    assert isinstance(beat(groups, "", joining()).error, GroupIdInvalid)
    assert isinstance(beat(groups, "g", joining()._replace(assignor="x")).error, AssignorUnknown)
    groups.broker.groups.join("classic", request, CallbackResult())
    groups.settle()
    assert isinstance(beat(groups, "classic", joining()).error, GroupNotFound)


def test_groups_are_described_in_the_words_of_the_classic_protocol(groups: ManualBroker) -> None:
    join(groups, "g")
    found = groups.broker.groups.describe("g")
    assert (found.kind, found.state) == (GroupKind.CONSUMER, ConsumerState.STABLE)
    assert (found.snapshot.protocol_type, found.snapshot.protocol) == ("consumer", "uniform")
    (member,) = found.snapshot.members
    assert (member.member_id, member.client_id, member.client_host) == ("m", "client", "/host")
    assert decode_assignment(member.assignment) == {"a": [0, 1, 2]}
    groups.broker.groups.measure()
    assert groups.metrics.counter("duramen_groups", "Stable", "consumer").value == 1


def test_offsets_of_topics_that_members_read_are_not_deleted(groups: ManualBroker) -> None:
    groups.create("b")
    epoch = join(groups, "g").epoch
    commit(groups, "g", CommitMember("m", None, epoch, knows_epochs=True), 1)
    answer: CallbackResult[list[DuramenError | None]] = CallbackResult()
    groups.broker.groups.delete_offsets("g", [OffsetKey("g", "a", 0), OffsetKey("g", "b", 0)], answer)
    groups.settle()
    assert [type(result) for result in answer.value] == [GroupSubscribed, type(None)]
    left = beat(groups, "g", living("m", -1))
    groups.settle()
    assert left.value.epoch == -1
    answer = CallbackResult()
    groups.broker.groups.delete_offsets("g", [OffsetKey("g", "a", 0)], answer)
    groups.settle()
    assert answer.value == [None]
    assert list(groups.broker.groups.all_committed("g")) == []
    answer = CallbackResult()
    groups.broker.groups.delete_offsets("nobody", [OffsetKey("nobody", "a", 0)], answer)
    assert isinstance(answer.error, GroupNotFound)


def test_a_deleted_group_leaves_nothing(groups: ManualBroker) -> None:
    join(groups, "g", pattern="a.*")
    assert isinstance(delete(groups, "g"), GroupNotEmpty)
    beat(groups, "g", living("m", -1))
    groups.settle()
    assert delete(groups, "g") is None
    assert isinstance(delete(groups, "g"), GroupNotFound)
    assert listed(groups) == {}
    groups.crash()
    assert listed(groups) == {}
    assert list(groups.broker.offsets.records_of("g")) == []
    assert join(groups, "g").epoch == 2


def test_an_empty_group_without_offsets_is_forgotten(groups: ManualBroker) -> None:
    join(groups, "g")
    beat(groups, "g", living("m", -1))
    groups.advance(600_000)
    assert listed(groups) == {}
    groups.crash()
    assert listed(groups) == {}


def test_topics_that_come_grow_and_go_reach_the_members(groups: ManualBroker) -> None:
    join(groups, "g", "m", "a", pattern="new-.*")
    groups.create("new-1", partitions=2)
    answer = beat(groups, "g", living("m", 2))
    groups.settle()
    assert len(answer.value.assigned or ()) == 5
    groups.delete("a")
    answer = beat(groups, "g", living("m", answer.value.epoch))
    groups.settle()
    places = answer.value.assigned
    assert places == frozenset((groups.broker.streams.get("new-1").id, index) for index in range(2))
    assert all(isinstance(topic, UUID) for topic, _ in places)


def configure(hand: ManualBroker, group: str, **configs: str | None) -> BaseException | None:
    """Change configs of a group, their dots as underscores; what kept it from being done."""
    answer: CallbackResult[None] = CallbackResult()
    changes = {f"consumer.{name.replace('_', '.')}": value for name, value in configs.items()}
    hand.broker.group_configs.change(group, changes, answer)
    hand.settle()
    return answer.error


def test_a_group_has_its_own_session_timeout_and_heartbeat_interval(groups: ManualBroker) -> None:
    join(groups, "g", "m")
    join(groups, "other", "m")
    assert configure(groups, "g", session_timeout_ms="60000", heartbeat_interval_ms="7000") is None
    groups.crash()
    consumer = groups.broker.groups.consumer
    assert consumer.config_of("g").heartbeat_interval_ms == 7000
    assert consumer.config_of("other") == consumer.config
    groups.advance(45_000)
    assert listed(groups) == {"g": ("Stable", GroupKind.CONSUMER), "other": ("Empty", GroupKind.CONSUMER)}
    assert configure(groups, "g", session_timeout_ms=None) is None
    beat(groups, "g", living("m", 2))
    groups.settle()
    groups.advance(45_000)
    assert listed(groups)["g"] == ("Empty", GroupKind.CONSUMER)


@pytest.mark.parametrize(
    "configs",
    [
        {"session_timeout_ms": "44999"}, {"session_timeout_ms": "60001"}, {"heartbeat_interval_ms": "4999"},
        {"heartbeat_interval_ms": "15001"}, {"session_timeout_ms": "x"},
    ],
)  # fmt: skip
def test_a_group_s_times_are_within_the_node_s_bounds(groups: ManualBroker, configs: dict[str, str]) -> None:
    assert isinstance(configure(groups, "g", **configs), ConfigInvalid)


def test_a_session_is_longer_than_what_lies_between_two_heartbeats() -> None:
    hand = ManualBroker({"group.consumer.min.session.timeout.ms": 1000})
    assert configure(hand, "g", session_timeout_ms="6s", heartbeat_interval_ms="5s") is None
    assert isinstance(configure(hand, "g", heartbeat_interval_ms="6s"), ConfigInvalid)
    assert configure(hand, "g", session_timeout_ms="7s", heartbeat_interval_ms="6s") is None
