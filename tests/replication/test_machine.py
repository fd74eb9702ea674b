"""What a replica refuses, and what it raises where somebody else has broken a promise."""

import pytest

from duramen.base.errors import LogDamaged
from duramen.base.ids import Position
from duramen.replication.effects import (
    Effect,
    ProposeInSyncSet,
    Release,
    SendReplicaMessage,
    ServeReplicaFetch,
    TransferLeadership,
)
from duramen.replication.machine import ReplicaMachine
from duramen.replication.messages import Reach, ReplicaFetch, ReplicaFetchAnswer, ReplicaRefusal, ReplicationCheckpoint
from duramen.replication.partition import PartitionConfig, ReplicatedPartition, Topology
from duramen.replication.replica import ReplicaDiskState
from duramen.replication.timeouts import TIMEOUTS

KEPT = ReplicaDiskState([(1, 1, 0)], 0, 5, 4)


def state(leader: int | None, epoch: int, partition_epoch: int, in_sync: set[int]) -> ReplicatedPartition:
    return ReplicatedPartition(leader, epoch, partition_epoch, (1, 2, 3), frozenset(in_sync))


def machine(told: ReplicatedPartition, least: int = 1) -> ReplicaMachine:
    made = ReplicaMachine(1, 7, KEPT, config=PartitionConfig(least), now_ms=0)
    made.on_partition_state(told, (1, 2, 3))
    made.take()
    return made


def fetch(epoch: int, broker_epoch: int = 9, covered: int = 5) -> ReplicaFetch:
    return ReplicaFetch(
        2, broker_epoch, epoch, Position(1, 5), (Reach(2, broker_epoch, covered),), 0, -1, 1, confirmed=True
    )


def refusals(effects: list[Effect]) -> list[ReplicaRefusal | None]:
    return [
        effect.message.refusal
        for effect in effects
        if isinstance(effect, SendReplicaMessage) and isinstance(effect.message, ReplicaFetchAnswer)
    ]


def test_the_epochs_of_both_have_to_be_the_same() -> None:
    leader = machine(state(1, 4, 1, {1, 2}))
    leader.receive(fetch(3))
    assert refusals(leader.take()) == [ReplicaRefusal.FENCED_LEADER_EPOCH]
    leader.receive(fetch(5))
    assert refusals(leader.take()) == []
    assert leader.deadline_ms == TIMEOUTS.wait_ms
    leader.tick(TIMEOUTS.wait_ms)
    assert refusals(leader.take()) == [ReplicaRefusal.UNKNOWN_LEADER_EPOCH]
    assert leader.high_watermark == 4


def test_who_asks_in_an_epoch_that_is_not_known_yet_is_answered_once_it_is() -> None:
    follower = machine(state(2, 4, 1, {1, 2}))
    follower.receive(fetch(6))
    follower.on_partition_state(state(2, 5, 2, {1, 2}), (1, 2, 3))
    assert refusals(follower.take()) == []
    follower.on_partition_state(state(1, 6, 3, {1, 2}), (1, 2, 3))
    assert [effect.answer.asked for effect in follower.take() if isinstance(effect, ServeReplicaFetch)] == [fetch(6)]
    assert follower.high_watermark == 5


def test_who_asks_in_an_epoch_that_is_over_before_it_was_heard_of_is_told_so() -> None:
    follower = machine(state(2, 4, 1, {1, 2}))
    follower.receive(fetch(5))
    follower.receive(fetch(5)._replace(reports=True))
    follower.on_partition_state(state(1, 6, 3, {1, 2}), (1, 2, 3))
    assert refusals(follower.take()) == [ReplicaRefusal.FENCED_LEADER_EPOCH]


def test_who_neither_leads_nor_follows_says_so() -> None:
    nobody = machine(state(None, 4, 1, {1, 2}))
    nobody.receive(fetch(4))
    assert refusals(nobody.take()) == [ReplicaRefusal.NOT_LEADER]
    assert nobody.refusal() is ReplicaRefusal.NOT_LEADER
    assert nobody.latest_offset is None
    with pytest.raises(ValueError, match="does not lead"):
        nobody.appended(1)


def test_what_was_said_under_an_earlier_registration_does_not_count() -> None:
    leader = machine(state(1, 4, 1, {1, 2}))
    leader.receive(fetch(4, broker_epoch=9, covered=2))
    leader.receive(fetch(4, broker_epoch=8, covered=5))
    assert leader.high_watermark == 4
    assert refusals(leader.take()) == [ReplicaRefusal.NOT_LEADER]
    leader.receive(fetch(4, broker_epoch=9, covered=5))
    assert leader.high_watermark == 5


def test_how_far_a_replica_is_was_said_under_its_registration() -> None:
    """Under a later one it may have another disk, and readers are not sent there before it says what that has."""
    leader = machine(state(1, 4, 1, {1, 2}))
    leader.receive(fetch(4, broker_epoch=9, covered=5))
    assert [leader.covered(2, epoch) for epoch in (8, 9, 10)] == [5, 5, -1]
    leader.receive(fetch(4, broker_epoch=10, covered=3))
    assert leader.covered(2, 10) == 3


def test_what_was_said_of_a_replica_before_it_was_added_again_is_of_an_older_epoch() -> None:
    """Its node let go of the first one's log; the controller adds no replica within a leader epoch."""
    leader = machine(state(1, 4, 1, {1, 2}))
    said = fetch(4)._replace(node_id=3, reaches=(Reach(3, 9, 5),), reports=True)
    leader.on_partition_state(state(1, 4, 2, {1, 2})._replace(replicas=(1, 2)), (1, 2, 3))
    leader.on_partition_state(state(1, 5, 3, {1, 2}), (1, 2, 3))
    leader.receive(said)
    assert not any(isinstance(effect, ProposeInSyncSet) for effect in leader.take())
    assert leader.covered(3, 9) == -1
    leader.receive(fetch(5))
    leader.receive(said._replace(leader_epoch=5))
    assert any(isinstance(effect, ProposeInSyncSet) for effect in leader.take())


def test_configs_that_change_do_not_end_a_proposal_that_is_under_way() -> None:
    leader = machine(state(1, 4, 1, {1, 2}))
    leader.receive(fetch(4))
    third = fetch(4)._replace(node_id=3, reaches=(Reach(3, 9, 5),))
    leader.receive(third)
    assert any(isinstance(effect, ProposeInSyncSet) for effect in leader.take())
    leader.configure(PartitionConfig(2))
    leader.appended(1)
    leader.synced(Position(4, 6))
    leader.receive(fetch(4)._replace(end=Position(4, 6), reaches=(Reach(2, 9, 6),)))
    assert leader.high_watermark == 5  # the third may be in sync by now, and lacks the record
    leader.on_partition_state(state(1, 4, 2, {1, 2, 3}), (1, 2, 3))
    assert leader.high_watermark == 5
    leader.receive(third._replace(end=Position(4, 6), reaches=(Reach(3, 9, 6),)))
    assert leader.high_watermark == 6


def test_with_too_few_in_sync_nothing_is_taken_and_who_waits_is_told() -> None:
    leader = machine(state(1, 4, 1, {1, 2}), least=2)
    assert leader.refusal() is None
    leader.appended(1, "producer")
    leader.on_partition_state(state(1, 4, 2, {1}), (1,))
    assert Release("producer", ReplicaRefusal.NOT_ENOUGH_REPLICAS_AFTER_APPEND) in leader.take()
    assert leader.refusal() is ReplicaRefusal.NOT_ENOUGH_REPLICAS


def test_a_leader_of_whose_successor_it_hears_leads_no_more() -> None:
    leader = machine(state(1, 4, 1, {1, 2}))
    leader.appended(1, "producer")
    leader.receive(fetch(5))
    assert Release("producer", ReplicaRefusal.NOT_LEADER) in leader.take()
    assert not leader.leads
    assert leader.refusal() is ReplicaRefusal.NOT_LEADER
    leader.on_partition_state(state(1, 4, 2, {1, 2}), (1, 2, 3))  # older than what was heard of
    assert not leader.leads
    leader.on_partition_state(state(1, 6, 3, {1, 2}), (1, 2, 3))
    assert leader.leads


@pytest.mark.parametrize("follower_first", [True, False])
def test_a_leader_without_a_session_lets_nobody_wait_for_whom_it_cannot_hear(*, follower_first: bool) -> None:
    leader = machine(state(1, 4, 1, {1, 2}))
    leader.appended(1, "producer")
    if follower_first:
        leader.unreachable(2)
    else:
        leader.on_controller_session(alive=False)
    assert leader.refusal() is None
    assert not any(isinstance(effect, Release) for effect in leader.take())
    if follower_first:
        leader.on_controller_session(alive=False)
    else:
        leader.unreachable(2)
    assert Release("producer", ReplicaRefusal.NOT_LEADER) in leader.take()
    assert leader.refusal() is ReplicaRefusal.NOT_LEADER
    assert leader.leads  # for those who wait for its own disk only
    leader.on_controller_session(alive=True)
    assert leader.refusal() is None


def test_a_leader_without_a_session_goes_on_with_followers_it_hears() -> None:
    leader = machine(state(1, 4, 1, {1, 2}))
    leader.unreachable(3)  # not in sync: nobody waits for it
    leader.on_controller_session(alive=False)
    assert leader.refusal() is None


def test_min_insync_replicas_asks_for_no_more_than_there_are() -> None:
    assert machine(state(1, 4, 1, {1, 2, 3}), least=9).refusal() is None


def test_who_waits_is_told_that_another_leads() -> None:
    leader = machine(state(1, 4, 1, {1, 2}))
    leader.appended(1, "producer")
    leader.on_partition_state(state(2, 5, 2, {1, 2}), (1, 2))
    assert Release("producer", ReplicaRefusal.NOT_LEADER) in leader.take()
    assert not leader.leads


def test_what_is_older_than_what_is_known_says_nothing() -> None:
    leader = machine(state(1, 4, 3, {1, 2}))
    leader.on_partition_state(state(2, 3, 2, {1, 2, 3}), (1, 2, 3))
    assert leader.leads
    assert leader.state.partition_epoch == 3


def test_no_log_begins_above_what_is_committed() -> None:
    leader = machine(state(1, 4, 1, {1, 2}))
    leader.trimmed(4)
    with pytest.raises(ValueError, match="offset 5 is not committed"):
        leader.trimmed(5)
    assert leader.history.start_offset == 4


def answer_to(follower: ReplicaMachine, **fields: object) -> ReplicaFetchAnswer:
    asked = next(
        effect.message
        for effect in follower.take()
        if isinstance(effect, SendReplicaMessage) and isinstance(effect.message, ReplicaFetch)
    )
    return ReplicaFetchAnswer(2, 4, asked)._replace(**fields)  # type: ignore[arg-type]


def follower() -> ReplicaMachine:
    made = ReplicaMachine(1, 7, KEPT, config=PartitionConfig(), now_ms=0)
    made.on_partition_state(state(2, 4, 1, {1, 2}), (1, 2, 3))
    return made


@pytest.mark.parametrize(
    "fields",
    [
        {"diverging": Position(1, 3)},
        {"refusal": ReplicaRefusal.OFFSET_OUT_OF_RANGE, "start_offset": 3},
    ],
)
def test_what_is_committed_is_never_cut(fields: dict[str, object]) -> None:
    replica = follower()
    with pytest.raises(LogDamaged, match=r"up to offset 4, and in epoch 4 the leader's log .* 3"):
        replica.receive(answer_to(replica, **fields))
    assert replica.history.end == Position(1, 5)


def test_an_answer_of_another_epoch_says_nothing() -> None:
    replica = follower()
    replica.receive(answer_to(replica, leader_epoch=5, high_watermark=5))
    assert replica.high_watermark == 4
    assert replica.take() == []


def test_a_config_that_changes_counts_from_then_on() -> None:
    leading = machine(state(1, 2, 1, {1}))
    assert leading.refusal() is None
    leading.configure(PartitionConfig(min_insync_replicas=2))
    assert leading.refusal() is ReplicaRefusal.NOT_ENOUGH_REPLICAS
    leading.configure(PartitionConfig(min_insync_replicas=1))
    assert leading.refusal() is None


def test_a_follower_turns_to_whom_another_topology_gives_it() -> None:
    made = ReplicaMachine(3, 7, KEPT, config=PartitionConfig(), now_ms=0)
    made.on_partition_state(state(1, 2, 1, {1, 2, 3}), [1, 2, 3])
    (asked,) = (effect for effect in made.take() if isinstance(effect, SendReplicaMessage))
    assert isinstance(asked.message, ReplicaFetch)
    made.receive(ReplicaFetchAnswer(1, 2, asked.message, None, 4))
    made.take()
    made.configure(PartitionConfig(topology=Topology.CHAIN))
    assert [effect.node_id for effect in made.take() if isinstance(effect, SendReplicaMessage)] == [2]


def test_who_is_cut_off_and_lacks_something_is_soon_out_of_sync() -> None:
    leading = machine(state(1, 4, 1, {1, 2}))
    leading.receive(fetch(4))
    leading.appended(1)
    leading.unreachable(2)
    leading.take()
    leading.tick(TIMEOUTS.gone_ms - 1)
    assert not [effect for effect in leading.take() if isinstance(effect, ProposeInSyncSet)]
    leading.tick(TIMEOUTS.gone_ms)
    (proposed,) = (effect for effect in leading.take() if isinstance(effect, ProposeInSyncSet))
    assert [member.node_id for member in proposed.proposal.in_sync] == [1]


def test_who_is_back_in_time_stays_in_sync() -> None:
    leading = machine(state(1, 4, 1, {1, 2}))
    leading.receive(fetch(4))
    leading.appended(1)
    leading.unreachable(2)
    leading.reachable(2)
    leading.tick(10 * TIMEOUTS.gone_ms)
    assert not [effect for effect in leading.take() if isinstance(effect, ProposeInSyncSet)]


def test_a_leader_whom_nobody_keeps_waiting_does_nothing_when_nodes_come_and_go() -> None:
    leader = machine(state(1, 4, 1, {1, 2, 3}))
    for node in (2, 3):
        leader.receive(fetch(4)._replace(node_id=node, reaches=(Reach(node, 9, 5),)))
    leader.take()
    waited_for = leader.awaits_others
    leader.unreachable(2, 0)
    leader.on_live_nodes((1, 3))
    leader.on_controller_session(alive=False)
    assert leader.take() == []
    leader.tick(TIMEOUTS.gone_ms)
    leader.appended(1)
    assert (waited_for, leader.awaits_others) == (False, True)
    leader.tick(TIMEOUTS.gone_ms + 1)
    proposed = [effect for effect in leader.take() if isinstance(effect, ProposeInSyncSet)]
    assert [member.node_id for member in proposed[0].proposal.in_sync] == [1, 3]


def test_only_in_a_line_it_matters_to_a_follower_who_is_live() -> None:
    for topology, upstream in ((Topology.FANOUT, 2), (Topology.CHAIN, 2)):
        told = state(2, 4, 1, {1, 2, 3})._replace(replicas=(2, 3, 1))
        follower = ReplicaMachine(1, 7, KEPT, config=PartitionConfig(topology=topology), now_ms=0)
        follower.on_partition_state(told, (1, 2, 3))
        assert follower.follows(upstream)  # the leader first, whatever the topology
        assert follower.reacts_to_live_nodes((1, 2)) is (topology is Topology.CHAIN)
        assert not follower.awaits_others


def test_a_leader_minds_that_a_node_is_live_once_it_was_heard() -> None:
    leader = machine(state(1, 4, 1, {1, 3}))
    assert not leader.reacts_to_live_nodes((1, 2, 3))
    leader.on_live_nodes((1, 3))
    leader.receive(fetch(4)._replace(node_id=3, reaches=(Reach(3, 9, 5),)))
    leader.receive(fetch(4))
    assert [effect for effect in leader.take() if isinstance(effect, ProposeInSyncSet)] == []
    assert (leader.reacts_to_live_nodes((1, 3)), leader.reacts_to_live_nodes((1, 2, 3))) == (False, True)
    leader.on_live_nodes((1, 2, 3))
    proposed = [effect.proposal for effect in leader.take() if isinstance(effect, ProposeInSyncSet)]
    assert [member.node_id for member in proposed[0].in_sync] == [1, 2, 3]


def test_who_waits_for_news_is_heard_again_as_soon_as_another_has_joined() -> None:
    leader = machine(state(1, 4, 1, {1}))
    leader.on_live_nodes((1, 2))
    asks = {node: fetch(4)._replace(node_id=node, reaches=(Reach(node, 9, 5),), high_watermark=5) for node in (2, 3)}
    leader.receive(asks[2])
    leader.receive(asks[3])  # parked: nothing follows, and it is not live yet
    leader.on_live_nodes((1, 2, 3))
    leader.take()
    leader.on_partition_state(state(1, 4, 2, {1, 2}), (1, 2, 3))
    assert [effect.answer.asked.node_id for effect in leader.take() if isinstance(effect, ServeReplicaFetch)] == [3]
    leader.receive(asks[3])
    (proposed,) = [effect.proposal for effect in leader.take() if isinstance(effect, ProposeInSyncSet)]
    assert [member.node_id for member in proposed.in_sync] == [1, 2, 3]


def test_who_goes_on_following_the_same_leader_has_nothing_to_do() -> None:
    follower = machine(state(2, 4, 1, {1, 2, 3}))
    deadline_ms = follower.deadline_ms
    shrunk = state(2, 4, 2, {1, 2})
    assert not follower.reacts_to(shrunk)
    follower.on_partition_state(shrunk, (1, 2))
    assert (follower.take(), follower.deadline_ms, follower.state) == ([], deadline_ms, shrunk)
    assert follower.reacts_to(state(3, 5, 3, {1, 3}))
    assert follower.reacts_to(state(None, 5, 3, {3}))
    assert machine(state(1, 4, 1, {1, 2, 3})).reacts_to(state(1, 4, 2, {1, 2}))


def test_what_could_not_be_sent_is_said_again_soon() -> None:
    follower = ReplicaMachine(1, 7, KEPT, config=PartitionConfig(), now_ms=0)
    follower.on_partition_state(state(2, 4, 1, {1, 2}), (1, 2, 3))
    (sent,) = [effect for effect in follower.take() if isinstance(effect, SendReplicaMessage)]
    assert isinstance(sent.message, ReplicaFetch)
    follower.lost(sent.message)
    assert follower.deadline_ms == TIMEOUTS.retry_ms
    follower.tick(TIMEOUTS.retry_ms)
    assert [effect.message for effect in follower.take() if isinstance(effect, SendReplicaMessage)] == [
        sent.message._replace(number=2)
    ]


def test_what_is_not_answered_is_asked_again_less_and_less_often_until_something_comes() -> None:
    follower = ReplicaMachine(1, 7, KEPT, config=PartitionConfig(), now_ms=0)
    follower.on_partition_state(state(2, 4, 1, {1, 2}), (1, 2, 3))
    waits, now_ms = [], 0
    for _ in range(4):
        assert follower.deadline_ms is not None
        waits.append(follower.deadline_ms - now_ms - TIMEOUTS.wait_ms)
        now_ms = follower.deadline_ms
        follower.tick(now_ms)
    assert waits == [TIMEOUTS.silence_ms * times for times in (1, 2, 4, 8)]
    follower.reachable(2)
    assert follower.deadline_ms == now_ms + TIMEOUTS.wait_ms + TIMEOUTS.silence_ms


def test_an_answer_that_could_not_be_sent_is_given_again_soon() -> None:
    leader = machine(state(1, 4, 1, {1, 2, 3}))
    leader.receive(fetch(4)._replace(confirmed=False))
    (served,) = [effect for effect in leader.take() if isinstance(effect, ServeReplicaFetch)]
    leader.lost(served.answer)
    leader.lost(served.answer._replace(asked=fetch(3)))  # of an epoch that is over: who asked asks again
    assert leader.take() == []
    leader.tick(TIMEOUTS.retry_ms)
    assert [effect.answer.asked for effect in leader.take() if isinstance(effect, ServeReplicaFetch)] == [
        served.answer.asked
    ]


def test_a_leader_tells_how_far_others_are_behind() -> None:
    leader = machine(state(1, 4, 1, {1, 2}))
    assert [(one.node_id, one.records) for one in leader.behind()] == [(2, None), (3, None)]
    leader.tick(10)
    leader.receive(fetch(4))
    leader.appended(2)
    leader.tick(40)
    assert [(one.node_id, one.records, one.waiting_ms) for one in leader.behind()] == [(2, 2, 30), (3, None, 0)]
    leader.on_partition_state(state(2, 5, 2, {1, 2}), (1, 2, 3))
    assert leader.behind() == []


def with_state(told: ReplicatedPartition, applied: int, checkpoint: int = 0) -> ReplicaMachine:
    """A replica whose log begins at 3, and that keeps a state beside it."""
    made = ReplicaMachine(1, 7, ReplicaDiskState([(1, 1, 3)], 3, 5, 4), config=PartitionConfig(1), now_ms=0)
    made.state_moved(applied, checkpoint)
    made.on_partition_state(told, (1, 2, 3))
    return made


def proposed(effects: list[Effect]) -> list[list[int]]:
    return [
        [member.node_id for member in effect.proposal.in_sync]
        for effect in effects
        if isinstance(effect, ProposeInSyncSet)
    ]


def test_a_replica_covers_nothing_while_its_log_begins_behind_its_state() -> None:
    follower = with_state(state(2, 4, 1, {1, 2}), 2)

    def said() -> list[Reach]:
        sent = [one.message for one in follower.take() if isinstance(one, SendReplicaMessage)]
        return [reach for message in sent if isinstance(message, ReplicaFetch) for reach in message.reaches]

    assert said() == [Reach(1, 7, -1)]
    follower.state_moved(3, 0)
    follower.receive(ReplicaFetchAnswer(2, 4, fetch_of(follower), None, 4, 3, None, None, ()))
    assert said()[-1] == Reach(1, 7, 5)
    follower.state_moved(-1, 0)  # its rows are damaged, and being restored
    assert said()[-1] == Reach(1, 7, -1)


def fetch_of(follower: ReplicaMachine) -> ReplicaFetch:
    return ReplicaFetch(1, 7, 4, follower.history.end, (), 0, -1, 1, confirmed=False)


def test_who_lacks_a_part_of_its_state_leaves_the_in_sync_set_at_once_and_joins_once_it_has_it() -> None:
    leader = with_state(state(1, 4, 1, {1, 2}), 5)
    leader.receive(fetch(4))
    assert not proposed(leader.take())
    leader.receive(fetch(4, covered=-1))
    assert proposed(leader.take()) == [[1]]
    leader.on_partition_state(state(1, 4, 2, {1}), (1, 2, 3))
    leader.receive(fetch(4, covered=-1))
    assert not proposed(leader.take())
    leader.receive(fetch(4))
    assert proposed(leader.take()) == [[1, 2]]


def test_a_leader_that_lacks_a_part_of_its_state_lets_one_lead_that_does_not() -> None:
    leader = with_state(state(1, 4, 1, {1, 2, 3}), 2)
    leader.receive(fetch(4, covered=-1))
    assert not [effect for effect in leader.take() if isinstance(effect, TransferLeadership)]
    leader.receive(fetch(4)._replace(node_id=3, reaches=(Reach(3, 9, 5),)))
    assert [effect for effect in leader.take() if isinstance(effect, TransferLeadership)] == [TransferLeadership(4, 3)]
    assert leader.deadline_ms is not None
    leader.tick(TIMEOUTS.retry_ms)  # the controller may not have heard it
    assert TransferLeadership(4, 3) in leader.take()
    assert leader.high_watermark == 4  # it commits nothing
    leader.state_moved(5, 0)
    leader.tick(3 * TIMEOUTS.retry_ms)
    assert not [effect for effect in leader.take() if isinstance(effect, TransferLeadership)]


def test_a_leader_cuts_nothing_before_every_replica_in_sync_has_said_in_its_epoch_what_it_can_do_without() -> None:
    leader = with_state(state(1, 4, 1, {1, 2, 3}), 5, 4)
    assert leader.lowest_checkpoint == -1
    leader.receive(fetch(4)._replace(checkpoints=(ReplicationCheckpoint(2, 9, 4),)))
    assert leader.lowest_checkpoint == -1
    leader.receive(
        fetch(4)._replace(node_id=3, reaches=(Reach(3, 9, 5),), checkpoints=(ReplicationCheckpoint(3, 9, 3),))
    )
    assert leader.lowest_checkpoint == 3
    leader.receive(fetch(4)._replace(checkpoints=(ReplicationCheckpoint(2, 9, 0),)))  # it has lost a checkpoint
    assert leader.lowest_checkpoint == 0
    leader.receive(fetch(4, broker_epoch=10))  # it has begun anew, and has not said what it has
    assert leader.lowest_checkpoint == -1
    leader.on_partition_state(state(1, 5, 2, {1, 2, 3}), (1, 2, 3))
    assert leader.lowest_checkpoint == -1
