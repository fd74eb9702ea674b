"""Groups on three brokers: who leads their partition coordinates them, and takes over what is committed."""

import pytest
from tests.broker.coordinated_world import CoordinatedWorld
from tests.broker.several import Several

from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    GroupNotFound,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    UnknownMember,
)
from duramen.broker.partition import Partition
from duramen.broker.replicas.replica import Replica
from duramen.codec.batch import CONTROL, TRANSACTIONAL, header
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.markers import encode_marker
from duramen.coordinators.group.coordinator import CommitMember
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.coordinators.group.rows import OffsetRows
from duramen.coordinators.runtime import shard_replica
from duramen.coordinators.runtime.active import ActiveShard
from duramen.coordinators.runtime.applying import Done as Applied
from duramen.coordinators.runtime.row_state import RowState
from duramen.coordinators.runtime.runtime import Runtime
from duramen.doors.kafka.request.errors import group_error_code
from duramen.groups.consumer_values import ConsumerHeartbeatResult, HeartbeatRequest
from duramen.groups.records import CommittedOffset, OffsetKey, partition_for
from duramen.groups.values import GroupState, JoinRequest, JoinResult, SyncRequest, SyncResult
from duramen.metadata.decisions import Definition
from duramen.sim.broker import CallbackResult
from duramen.storage.log.log import Log

ANYBODY = CommitMember("", None, -1)
SESSION_MS = 10_000
SEEDS = 20
STEPS = 150


@pytest.fixture
def several() -> Several:
    """Three brokers with a stream `a` and one for offsets; node 1 leads partition 0 of that, node 2 partition 1."""
    several = Several()
    several.ensure_offsets()
    created: CallbackResult[None] = CallbackResult()
    several.broker(3).create_stream(Definition("a", 2), created)
    several.settle()
    assert created.value is None
    return several


GROUP = "g"
HOME = 2
"""Who coordinates the group at first."""
ELSEWHERE = 3


def take_over(several: Several, node: int = ELSEWHERE) -> None:
    """Have a node lead the group's partition."""
    several.elect(several.place(OFFSETS_STREAM, partition_for(GROUP, 2)), node)
    several.advance(1000)


def commit(
    several: Several, node: int, offset: int, member: CommitMember = ANYBODY
) -> CallbackResult[list[DuramenError]]:
    """Commit an offset of the first partition."""
    answer: CallbackResult[list[DuramenError]] = CallbackResult()
    wanted = [(OffsetKey(GROUP, "a", 0), CommittedOffset(offset, 1, "", 0))]
    several.broker(node).groups.commit(GROUP, member, wanted, answer)
    return answer


def committed(several: Several, node: int) -> int | None:
    """What a node says that the group has committed. Raises what it says instead."""
    groups = several.broker(node).groups
    groups.check_fetch(GROUP, None, -1)
    found = groups.committed(OffsetKey(GROUP, "a", 0))
    return None if found is None else found.offset


def join(several: Several, node: int, name: str = "m") -> CallbackResult[JoinResult]:
    """Ask to join; nothing is settled."""
    answer: CallbackResult[JoinResult] = CallbackResult()
    request = JoinRequest("", None, name, False, "client", "/host", SESSION_MS, 60_000, "consumer", [("range", b"a")])
    several.broker(node).groups.join(GROUP, request, answer)
    return answer


def member(several: Several) -> CommitMember:
    """The one member of the group, with its assignment."""
    joined = join(several, HOME)
    several.settle()
    synced: CallbackResult[SyncResult] = CallbackResult()
    request = SyncRequest(joined.value.member_id, None, joined.value.generation, None, None, [("m", b"all")])
    several.broker(HOME).groups.sync(GROUP, request, synced)
    several.advance(1000)
    assert synced.value.assignment == b"all"
    return CommitMember(joined.value.member_id, None, joined.value.generation)


def beat(several: Several, node: int, who: CommitMember) -> BaseException | None:
    """A sign of life, and what was answered."""
    answer: CallbackResult[None] = CallbackResult()
    several.broker(node).groups.heartbeat(GROUP, who, answer)
    return answer.error


# -- who coordinates ----------------------------------------------------------------------------------


def test_who_leads_the_partition_coordinates_and_nobody_else(several: Several) -> None:
    answers = {node: commit(several, node, node) for node in several.hands}
    several.advance(1000)
    assert answers.pop(HOME).value == [None]
    assert [type(answer.error) for answer in answers.values()] == [NotCoordinator, NotCoordinator]
    assert "node 2 does in epoch 1" in str(answers[1].error)
    assert committed(several, HOME) == 2
    with pytest.raises(NotCoordinator):
        committed(several, ELSEWHERE)
    assert [len(several.broker(node).groups.listing()) for node in several.hands] == [0, 1, 0]


def test_every_request_is_refused_elsewhere(several: Several) -> None:
    who = member(several)
    broker = several.broker(ELSEWHERE)
    results: list[object] = []
    broker.groups.leave(GROUP, [], results.append)
    broker.groups.sync(GROUP, SyncRequest("m", None, 1, None, None, ()), results.append)
    broker.groups.delete(GROUP, results.append)
    broker.groups.delete_offsets(GROUP, [], results.append)
    broker.groups.consumer_heartbeat(GROUP, heartbeat("c", 0), results.append)
    results += [beat(several, ELSEWHERE, who), join(several, ELSEWHERE).error]
    assert [type(result) for result in results] == [NotCoordinator] * 7
    for refused in (broker.groups.describe, broker.groups.check):
        with pytest.raises(NotCoordinator):
            refused(GROUP)
    with pytest.raises(NotCoordinator):
        broker.groups.check_transactional(GROUP, who)


def test_nobody_coordinates_where_nothing_was_ever_stored() -> None:
    with pytest.raises(NotCoordinator, match="there is no stream __consumer_offsets"):
        Several(1).broker(1).groups.check_coordinated(GROUP)


# -- taking over --------------------------------------------------------------------------------------


def test_what_was_acknowledged_is_there_with_the_next_coordinator(several: Several) -> None:
    for offset in range(1, 30):
        commit(several, HOME, offset)
    several.advance(1000)
    take_over(several)
    assert committed(several, ELSEWHERE) == 29
    with pytest.raises(NotCoordinator):
        committed(several, HOME)
    commit(several, ELSEWHERE, 50)
    several.advance(1000)
    take_over(several, HOME)
    assert committed(several, HOME) == 50


def test_a_new_leader_answers_once_what_it_has_is_committed(several: Several) -> None:
    answer = commit(several, HOME, 7)
    while not answer.there:
        for hand in several.hands.values():
            hand.settle()
        several.step()
    several.cut |= {1, HOME}  # before the others hear that it is committed
    several.elect(several.place(OFFSETS_STREAM, partition_for(GROUP, 2)), ELSEWHERE)
    several.settle()
    with pytest.raises(CoordinatorLoading):
        committed(several, ELSEWHERE)
    assert isinstance(commit(several, ELSEWHERE, 8).error, CoordinatorLoading)
    several.heal(1)
    several.heal(HOME)
    several.advance(2000)
    assert committed(several, ELSEWHERE) == 7


def test_who_waits_is_told_and_nothing_is_kept(several: Several) -> None:
    who = member(several)
    waiting = join(several, HOME, "n")  # whose rebalance waits for the other member
    several.settle()
    assert not waiting.there
    take_over(several)
    assert isinstance(waiting.error, NotCoordinator)
    classic = several.broker(HOME).groups.classic
    assert not classic._groups
    assert not classic._alarms
    assert several.broker(HOME).groups.room._held_bytes == 0
    assert isinstance(beat(several, HOME, who), NotCoordinator)


def test_members_have_a_whole_session_with_the_next_coordinator(several: Several) -> None:
    who = member(several)
    several.advance(SESSION_MS - 2000)
    take_over(several)
    several.advance(SESSION_MS - 2000)
    assert beat(several, ELSEWHERE, who) is None
    assert commit(several, ELSEWHERE, 3, who).there is False
    several.advance(SESSION_MS - 1000)
    assert several.broker(ELSEWHERE).groups.describe(GROUP).state is GroupState.STABLE
    several.advance(2000)
    assert several.broker(ELSEWHERE).groups.describe(GROUP).state is GroupState.EMPTY
    assert isinstance(beat(several, ELSEWHERE, who), UnknownMember)
    assert committed(several, ELSEWHERE) == 3


def heartbeat(member_id: str, epoch: int) -> HeartbeatRequest:
    """A heartbeat of the consumer protocol: the first, or one that says nothing new."""
    joins = epoch == 0
    return HeartbeatRequest(
        member_id, epoch, None, None, "client", "/host", 60_000 if joins else -1,
        frozenset({"a"}) if joins else None, None, None, frozenset() if joins else None,
    )  # fmt: skip


def test_members_of_the_consumer_protocol_go_on_with_the_next_coordinator(several: Several) -> None:
    def beaten(node: int, epoch: int) -> CallbackResult[ConsumerHeartbeatResult]:
        answer: CallbackResult[ConsumerHeartbeatResult] = CallbackResult()
        several.broker(node).groups.consumer_heartbeat(GROUP, heartbeat("c", epoch), answer)
        several.advance(1000)
        return answer

    joined = beaten(HOME, 0).value
    take_over(several)
    assert isinstance(beaten(HOME, joined.epoch).error, NotCoordinator)
    assert not several.broker(HOME).groups.consumer._held
    assert beaten(ELSEWHERE, joined.epoch).value.epoch == joined.epoch
    assert commit(several, ELSEWHERE, 5, CommitMember("c", None, joined.epoch, knows_epochs=True)).there is False
    several.advance(46_000)
    assert isinstance(beaten(ELSEWHERE, joined.epoch).error, UnknownMember)


def test_offsets_of_topics_that_are_gone_are_forgotten_by_the_next_coordinator(several: Several) -> None:
    commit(several, HOME, 3)
    several.advance(1000)
    several.elect(several.place(OFFSETS_STREAM, partition_for(GROUP, 2)), None)
    deleted: CallbackResult[None] = CallbackResult()
    several.broker(1).delete_stream("a", deleted)
    take_over(several)
    with pytest.raises(GroupNotFound):
        several.broker(ELSEWHERE).groups.describe(GROUP)


# -- what is not stored -------------------------------------------------------------------------------


def test_what_may_be_stored_or_not_is_waited_for() -> None:
    several = Several()
    several.require_in_sync(2)
    several.ensure_offsets()
    created: CallbackResult[None] = CallbackResult()
    several.broker(1).create_stream(Definition("a", 1), created)
    several.settle()
    commit(several, HOME, 1)
    several.advance(1000)
    several.proposed.clear()
    several.cut |= {1, ELSEWHERE}
    answer = commit(several, HOME, 2)
    several.advance(60_000, 1000)
    assert isinstance(answer.calls[0][0][0], NotEnoughReplicasAfterAppend)
    with pytest.raises(CoordinatorLoading):
        committed(several, HOME)
    several.heal(1)
    several.advance(2000)
    assert committed(several, HOME) == 2


# -- transactions -------------------------------------------------------------------------------------


def hold(several: Several, node: int, offset: int) -> None:
    """An offset that counts once producer 9 commits."""
    answer: CallbackResult[None] = CallbackResult()
    wanted = [(OffsetKey(GROUP, "a", 0), CommittedOffset(offset, 1, "", 0))]
    several.broker(node).offsets.hold(GROUP, 9, 0, wanted, answer)
    several.advance(1000)
    assert answer.value is None


def test_offsets_of_open_transactions_move_with_the_coordinator(several: Several) -> None:
    key = OffsetKey(GROUP, "a", 0)
    commit(several, HOME, 1)
    hold(several, HOME, 5)
    assert several.broker(HOME).groups.unstable(key)
    take_over(several)
    assert several.broker(ELSEWHERE).groups.unstable(key)
    assert committed(several, ELSEWHERE) == 1
    # Whoever ends the transaction writes its marker there: the coordinator finds it in its log.
    marker = encode_marker(9, 0, commit=True, coordinator_epoch=0, now_ms=0)
    partition = several.broker(ELSEWHERE).streams.get(OFFSETS_STREAM).partition(partition_for(GROUP, 2))
    partition.store(marker, header(marker), lambda *_: None)
    several.advance(1000)
    assert not several.broker(ELSEWHERE).groups.unstable(key)
    assert committed(several, ELSEWHERE) == 5
    take_over(several, 1)
    assert committed(several, 1) == 5


# -- how much is read ---------------------------------------------------------------------------------


def followed(several: Several, node: int) -> int | None:
    """What a node that follows has taken in of the first partition's offset."""
    rows = several.broker(node).coordinators.rows(OFFSETS_STREAM, partition_for(GROUP, 2))
    found = OffsetRows(rows).offset(OffsetKey(GROUP, "a", 0))
    return None if found is None else found.offset


def test_a_node_that_follows_has_less_to_take_in(several: Several) -> None:
    commit(several, HOME, 4)
    several.advance(1000)
    assert followed(several, ELSEWHERE) == 4
    with pytest.raises(NotCoordinator):
        committed(several, ELSEWHERE)


def test_a_log_that_is_begun_anew_leaves_nothing_in_the_rows(several: Several) -> None:
    commit(several, HOME, 4)
    several.advance(1000)
    several.broker(ELSEWHERE).streams.get(OFFSETS_STREAM).partition(partition_for(GROUP, 2)).begin_anew()
    assert followed(several, ELSEWHERE) is None


# -- what doors say -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotCoordinator, ErrorCode.NOT_COORDINATOR),
        (NotLeader, ErrorCode.NOT_COORDINATOR),
        (CoordinatorLoading, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (NotEnoughReplicas, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (NotEnoughReplicasAfterAppend, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_clients_are_told_to_look_again_or_to_wait(error: type[DuramenError], code: ErrorCode) -> None:
    assert group_error_code(error("")) == code


# -- whatever happens ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_what_is_told_is_what_was_acknowledged_or_newer(seed: int) -> None:
    assert CoordinatedWorld(seed).run(STEPS).total()


def _found_within(seeds: range) -> bool:
    for seed in seeds:
        try:
            CoordinatedWorld(seed).run(200)
        except AssertionError:
            return True
    return False


def test_a_coordinator_that_answers_before_all_is_committed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    advanced = ActiveShard.advanced

    def early(self: ActiveShard, position: int, failed: DuramenError | None = None) -> None:
        self._target = 0
        advanced(self, position, failed)

    monkeypatch.setattr(ActiveShard, "advanced", early)
    assert _found_within(range(768, 769))


def test_a_commit_that_is_answered_before_others_have_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    accept = Replica.accept
    monkeypatch.setattr(Replica, "accept", lambda self, done, **_: accept(self, done, all_replicas=False))
    assert _found_within(range(1, 4))


def test_a_coordinator_that_does_not_read_its_log_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = RowState.apply

    def nothing(self: RowState, log: Log, _: list[bytes], next_offset: int, done: Applied) -> None:
        apply(self, log, [], next_offset, done)

    monkeypatch.setattr(RowState, "apply", nothing)
    assert _found_within(range(1, 4))


def test_a_coordinator_that_stays_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Runtime.led

    def stay(self: Runtime, partition: Partition, leader_epoch: int | None) -> None:
        if leader_epoch is not None:
            led(self, partition, leader_epoch)

    monkeypatch.setattr(Runtime, "led", stay)
    monkeypatch.setattr(ActiveShard, "_check_leads", lambda *_: None)
    assert _found_within(range(1, 6))


def test_records_of_its_own_that_are_applied_out_of_order_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_replica, "comes_next", lambda *_: True)
    assert _found_within(range(1, 40))


def test_open_transactions_that_are_left_behind_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = RowState.apply

    def without(self: RowState, log: Log, found: list[bytes], next_offset: int, done: Applied) -> None:
        rest = [batch for batch in found if header(batch).attributes & (TRANSACTIONAL | CONTROL) != TRANSACTIONAL]
        apply(self, log, rest, next_offset, done)

    monkeypatch.setattr(RowState, "apply", without)
    assert _found_within(range(1, 40))
