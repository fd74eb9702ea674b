"""What an operator asks on any node of a cluster, brought to the active controller; and what a node alone answers."""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from tests.controller.active.node import ControlNode
from tests.controller.active.scripted import Scripted, described, office_of, state_of
from tests.controller.active.test_active import Cluster, create

from duramen.base.errors import (
    DuramenError,
    ElectionNotNeeded,
    LeaderUnavailable,
    NodeNotFound,
    NotController,
    OutcomeUnknown,
    ReassignmentNotFound,
    ReplicaAssignmentInvalid,
    ReplicationFactorInvalid,
    RequestInvalid,
    StreamNotFound,
    UnsupportedFeature,
    VoterDuplicate,
    VoterNotFound,
    VotersUnsettled,
)
from duramen.broker.control import requests
from duramen.broker.control.responses import Answer, Done, Observed
from duramen.controller.admin.cluster import ClusterAdmin, QuorumView
from duramen.controller.admin.overview import PartitionFaults, faults, moving, nodes
from duramen.controller.admin.replica_survey import ReplicaCompleteness, Survey
from duramen.metadata.events import Endpoint, NodeRegistered
from duramen.metadata.partitions import PartitionId
from duramen.metadata.state import ControllerState
from duramen.raft.voters import ReplicaId, Voter
from duramen.sim.broker import ManualBroker


class Operated(Cluster):
    """Three voters, two nodes that follow, and an operator at the last of them."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster_admin = self.office_of(self.part(5))

    def office_of(self, node: ControlNode) -> ClusterAdmin:
        return ClusterAdmin(
            node.asker, lambda: node.view.state, lambda: None if node.runner is None else node.runner.describe()
        )

    def wait(self, ask: Callable[[Callable[[Any], None]], None], for_ms: int = 2_000) -> Any:
        """What is answered."""
        answers: list[Any] = []
        ask(answers.append)
        self.go_on_until(lambda: answers, for_ms)
        (answer,) = answers
        return answer

    def make(self, name: str, partitions: int = 1, factor: int = 3) -> None:
        self.decided(create(name, partitions, factor))
        self.go_on(100)


def kind(error: DuramenError | None) -> type[DuramenError] | None:
    return None if error is None else type(error)


def test_leaders_are_elected_and_moved() -> None:
    cluster = Operated()
    cluster.make("a", 2)
    cluster_admin = cluster.cluster_admin
    place, other = cluster_admin.find("a", 0), cluster_admin.find("a", 1)
    partition = cluster_admin.state.partitions.get(place)
    assert partition is not None
    cluster.go_on(300)  # until all are in sync
    second = partition.replicas[1]
    assert cluster.wait(lambda done: cluster_admin.move_leader(place, second, done)) is None
    cluster.go_on(100)
    assert cluster_admin.electable() == [place]
    elected = cluster.wait(lambda done: cluster_admin.elect([place, other], done))
    assert [(one.place, kind(one.error)) for one in elected] == [(place, None), (other, ElectionNotNeeded)]
    cluster.go_on(100)
    assert cluster_admin.electable() == []
    assert cluster_admin.electable(unclean=True) == []
    survey = Survey(place, {second: ReplicaCompleteness(1, 5, 3)}, ())
    (unclean,) = cluster.wait(lambda done: cluster_admin.elect_unclean([survey], done))
    assert kind(unclean.error) is ElectionNotNeeded
    stranger = next(node for node in range(1, 6) if node not in partition.replicas)
    assert kind(cluster.wait(lambda done: cluster_admin.move_leader(place, stranger, done))) is LeaderUnavailable


def test_of_many_elections_a_bounded_number_is_under_way() -> None:
    cluster_admin, asking = office_of(lambda _: None)
    waiting = asking.waiting
    places = [PartitionId(UUID(int=1), index) for index in range(150)]
    answers: list[Any] = []
    cluster_admin.elect(places, answers.append)
    assert len(waiting) == 64
    for at in range(150):
        waiting[at](Answer(Done(), 1) if at % 2 else ElectionNotNeeded("no"))
    assert len(waiting) == 150
    (elected,) = answers
    assert [one.place for one in elected] == places
    assert [kind(one.error) for one in elected] == [ElectionNotNeeded, None] * 75
    cluster_admin.elect([], answers.append)
    assert answers[1] == []


def test_replicas_move_and_do_not() -> None:
    cluster = Operated()
    cluster.make("a")
    cluster_admin = cluster.cluster_admin
    place = cluster_admin.find("a", 0)
    before = cluster_admin.state.partitions.get(place)
    assert before is not None
    spare = [node for node in range(1, 6) if node not in before.replicas]

    def reassign(replicas: list[int] | None, *, may_resize: bool = True) -> type[DuramenError] | None:
        return kind(cluster.wait(lambda done: cluster_admin.reassign(place, replicas, done, may_resize=may_resize)))

    assert reassign([*before.replicas[:2], 77]) is ReplicaAssignmentInvalid
    assert reassign([before.replicas[0]], may_resize=False) is ReplicationFactorInvalid
    assert reassign(None) is ReassignmentNotFound
    cluster.isolate(cluster.part(spare[0]))  # it cannot catch up
    assert reassign([*before.replicas[:2], spare[0]], may_resize=False) is None
    cluster.go_on(50)
    assert [(found, partition.adding) for found, partition in moving(cluster_admin.state)] == [(place, (spare[0],))]
    assert faults(cluster_admin.state) == PartitionFaults(1, [], [], [place])
    assert reassign(None) is None
    cluster.go_on(50)
    assert list(moving(cluster_admin.state)) == []
    with pytest.raises(StreamNotFound, match="no partition 7"):
        cluster_admin.find("a", 7)
    with pytest.raises(StreamNotFound, match="no stream b"):
        cluster_admin.find("b", 0)


def test_a_plan_is_carried_out_some_at_a_time_and_taken_back() -> None:
    cluster = Operated()
    cluster.make("a", 6, 2)
    cluster_admin = cluster.cluster_admin
    assert kind_of(cluster.wait(lambda done: cluster_admin.plan([9], done))) is NodeNotFound
    moves = cluster.wait(lambda done: cluster_admin.plan([5], done))
    assert not isinstance(moves, DuramenError)
    assert moves
    assert all(5 not in move.after for move in moves)
    step = cluster.wait(lambda done: cluster_admin.begin(moves, 1, done))
    assert not isinstance(step, DuramenError)
    assert (step.moving, step.moving + step.done + step.waiting) == (1, len(moves))
    cluster.go_on(500)
    while not isinstance(step, DuramenError) and step.done < len(moves):
        step = cluster.wait(lambda done: cluster_admin.begin(moves, 1, done))
        cluster.go_on(200)
    assert cluster_admin.progress(moves).done == len(moves)
    assert next(load for load in nodes(cluster_admin.state) if load.node.id == 5).replicas == 0
    taken = cluster.wait(lambda done: cluster_admin.cancel(moves, done))
    assert taken == cluster_admin.progress(moves)


def kind_of(answer: object) -> type | None:
    return type(answer) if isinstance(answer, DuramenError) else None


def test_nodes_drain_and_are_unregistered_when_they_are_gone() -> None:
    cluster = Operated()
    cluster.make("a", 5)
    cluster_admin = cluster.cluster_admin

    def states() -> dict[int, str]:
        return {load.node.id: load.state for load in nodes(cluster_admin.state)}

    assert set(states().values()) == {"live"}
    assert sum(load.leaders for load in nodes(cluster_admin.state)) == 5
    assert kind(cluster.wait(lambda done: cluster_admin.drain(9, done))) is NodeNotFound
    assert cluster.wait(lambda done: cluster_admin.drain(4, done)) is None
    cluster.go_on(100)
    assert states()[4] == "draining"
    assert next(load for load in nodes(cluster_admin.state) if load.node.id == 4).leaders == 0
    assert kind(cluster.wait(lambda done: cluster_admin.unregister(4, done))) is RequestInvalid
    assert kind(cluster.wait(lambda done: cluster_admin.remove(4, done))) is RequestInvalid


def test_a_node_that_is_gone_is_removed_with_its_vote() -> None:
    cluster = Operated()
    cluster_admin = cluster.cluster_admin
    gone = next(node for node in (1, 2, 3) if node != cluster.leader.node_id)
    cluster.isolate(cluster.part(gone))
    cluster.go_on(1_000)
    assert {load.node.id: load.state for load in nodes(cluster_admin.state)}[gone] == "fenced"
    assert cluster.wait(lambda done: cluster_admin.remove(gone, done)) is None
    cluster.go_on(100)
    assert gone not in cluster_admin.state.registrations
    observed = cluster.wait(cluster_admin.observe)
    assert isinstance(observed, Observed)
    assert gone not in [seen.replica.node_id for seen in observed.voters]
    assert kind(cluster.wait(lambda done: cluster_admin.remove(gone, done))) is NodeNotFound


def test_voters_change_one_at_a_time_and_the_answer_is_committed() -> None:
    cluster = Operated()
    cluster_admin = cluster.cluster_admin
    seen = cluster.wait(cluster_admin.observe)
    assert isinstance(seen, Observed)
    assert seen.leader_id == cluster.leader.node_id
    assert [one.replica.node_id for one in seen.voters] == [1, 2, 3]
    assert [one.replica.node_id for one in seen.observers] == [4, 5]
    assert sorted(seen.applied) == [1, 2, 3, 4, 5]

    def added(node_id: int) -> type[DuramenError] | None:
        return kind(cluster.wait(lambda done: cluster_admin.add_voter(node_id, done)))

    assert (added(1), added(9)) == (VoterDuplicate, NodeNotFound)
    assert added(4) is None
    seen = cluster.wait(cluster_admin.observe)
    assert isinstance(seen, Observed)
    assert [one.replica.node_id for one in seen.voters] == [1, 2, 3, 4]
    assert kind(cluster.wait(lambda done: cluster_admin.remove_voter(5, done))) is VoterNotFound
    # Who leads and is removed says that it is committed before it leads no more.
    leader = cluster.leader.node_id
    assert cluster.wait(lambda done: cluster.office_of(cluster.part(leader)).remove_voter(leader, done)) is None
    cluster.go_on(1_000)
    seen = cluster.wait(cluster_admin.observe)
    assert isinstance(seen, Observed)
    assert leader not in [one.replica.node_id for one in seen.voters]


def test_a_voter_that_does_not_follow_is_not_added() -> None:
    cluster = Operated()
    cluster.isolate(cluster.part(4))
    cluster.go_on(2_000)
    cluster_admin = cluster.cluster_admin
    assert kind(cluster.wait(lambda done: cluster_admin.add_voter(4, done))) is VotersUnsettled


def test_there_is_one_change_of_the_voters_at_a_time_and_an_end_of_it_that_nobody_knows() -> None:
    cluster = Operated()
    old = cluster.leader
    seen = cluster.wait(cluster.cluster_admin.observe)
    removed = [requests.RemoveVoter(row.replica) for row in seen.voters if row.replica.node_id != old.node_id]
    cluster.isolate(old)
    first, second = cluster.decide(removed[0]), cluster.decide(removed[1])
    assert (first, [type(outcome) for outcome in second]) == ([], [VotersUnsettled])
    cluster.go_on(2_000)
    assert [type(outcome) for outcome in first] == [OutcomeUnknown]
    cluster.cut = set()
    cluster.go_on(1_000)
    seen = cluster.wait(cluster.cluster_admin.observe)
    assert [row.replica.node_id for row in seen.voters] == [1, 2, 3]
    unknown = requests.RemoveVoter(ReplicaId(9, "d"))
    assert type(cluster.decided(unknown)) is VoterNotFound


def test_the_last_voter_stays() -> None:
    cluster = Operated()
    cluster_admin = cluster.cluster_admin
    for _ in range(2):
        gone = next(node for node in (1, 2, 3) if node in voters(cluster) and node != cluster.leader.node_id)
        assert cluster.wait(partial(cluster_admin.remove_voter, gone)) is None
        cluster.go_on(200)
    (last,) = voters(cluster)
    assert kind(cluster.wait(lambda done: cluster_admin.remove_voter(last, done))) is RequestInvalid


def voters(cluster: Operated) -> list[int]:
    return [row.replica.node_id for row in cluster.wait(cluster.cluster_admin.observe).voters]


def test_without_a_controller_a_node_shows_what_it_knows_itself() -> None:
    cluster = Operated()
    for node_id in (1, 2, 3):
        cluster.part(node_id).end()
    cluster.go_on(1_000)
    cluster_admin = cluster.cluster_admin
    assert kind_of(cluster.wait(lambda done: cluster_admin.observe(done, within_ms=200))) is NotController
    seen, from_leader = cluster.wait(lambda done: cluster_admin.look(done, within_ms=200))
    assert not from_leader
    assert ([one.replica.node_id for one in seen.voters], seen.observers, seen.applied) == ([1, 2, 3], (), {})


def test_before_it_takes_part_a_node_knows_nothing() -> None:
    answers: list[QuorumView | DuramenError] = []
    lost = Scripted(lambda _: OutcomeUnknown("lost"))
    ClusterAdmin(lost, ControllerState, lambda: None).look(answers.append)
    assert kind_of(answers[0]) is NotController


@pytest.mark.parametrize(("endpoints", "where"), [((Endpoint("cluster", "::1", 9096),), "[::1]:9096"), ((), "")])
def test_a_voter_is_reached_where_its_node_listens(endpoints: tuple[Endpoint, ...], where: str) -> None:
    state = state_of()
    directory = described().observers[0].replica.directory_id
    state.apply(NodeRegistered(3, directory, epoch=9, endpoints=endpoints))
    seen = described()
    observed = Observed(*seen[:5], tuple(seen.endpoints))
    cluster_admin, asking = office_of(
        lambda request: observed if isinstance(request, requests.Observe) else Done(), state
    )
    answers: list[DuramenError | None] = []
    cluster_admin.add_voter(3, answers.append)
    assert answers == [None]
    assert asking.asked[1] == requests.AddVoter(Voter(ReplicaId(3, directory), where))


# -- alone --------------------------------------------------------------------------------------------


class Alone:
    """A broker that is alone, with the stream `a` of three partitions."""

    def __init__(self) -> None:
        self.hand = ManualBroker()
        self.hand.create("a", partitions=3)
        self.cluster_admin = self.hand.broker.membership.cluster_admin
        self.me = self.hand.broker.node_id
        self.place = self.cluster_admin.find("a", 1)

    def error(self, ask: Callable[[Callable[[Any], None]], None]) -> type | None:
        answers: list[Any] = []
        ask(answers.append)
        (answer,) = answers
        return kind_of(answer)


def test_alone_nothing_needs_to_change_and_nothing_can() -> None:
    alone = Alone()
    cluster_admin, me, place = alone.cluster_admin, alone.me, alone.place
    elections: list[Any] = []
    cluster_admin.elect([place], elections.append)
    cluster_admin.elect_unclean([Survey(place, {1: ReplicaCompleteness(1, 5, 3)}, ())], elections.append)
    assert [kind(one.error) for (one,) in elections] == [ElectionNotNeeded] * 2
    assert cluster_admin.electable() == []
    assert alone.error(lambda done: cluster_admin.reassign(place, [me], done)) is None
    assert alone.error(lambda done: cluster_admin.reassign(place, [me, 9], done)) is ReplicaAssignmentInvalid
    assert alone.error(lambda done: cluster_admin.reassign(place, None, done)) is ReassignmentNotFound
    assert alone.error(lambda done: cluster_admin.move_leader(place, me, done)) is None
    assert alone.error(lambda done: cluster_admin.move_leader(place, 9, done)) is LeaderUnavailable
    assert alone.error(lambda done: cluster_admin.unregister(me, done)) is RequestInvalid
    assert alone.error(lambda done: cluster_admin.unregister(9, done)) is NodeNotFound
    assert alone.error(lambda done: cluster_admin.drain(me, done)) is RequestInvalid
    assert alone.error(lambda done: cluster_admin.add_voter(me, done)) is VoterDuplicate
    assert alone.error(lambda done: cluster_admin.add_voter(9, done)) is NodeNotFound
    assert alone.error(lambda done: cluster_admin.remove_voter(me, done)) is RequestInvalid
    assert alone.error(lambda done: cluster_admin.remove_voter(9, done)) is VoterNotFound
    assert alone.error(lambda done: cluster_admin.set_feature_level(0, done)) is None
    assert alone.error(lambda done: cluster_admin.set_feature_level(1, done)) is UnsupportedFeature
    plans: list[Any] = []
    cluster_admin.plan([], plans.append)
    cluster_admin.plan([me], plans.append)
    assert plans == [(), ()]
    assert not alone.hand.broker.metadata_state.partitions


def test_alone_a_node_is_the_quorum_and_has_all_there_is() -> None:
    alone = Alone()
    seen: list[Any] = []
    alone.cluster_admin.observe(seen.append)
    observed = seen[0]
    (row,) = observed.voters
    assert (observed.leader_id, row.replica.node_id) == (alone.me, alone.me)
    assert observed.high_watermark == row.synced_offset == row.log_end_offset > 0
    (load,) = nodes(alone.cluster_admin.state)
    assert (load.node.id, load.state, load.leaders, load.replicas) == (alone.me, "live", 3, 3)
    assert faults(alone.cluster_admin.state) == PartitionFaults(3, [], [], [])
    asked = requests.AddVoter(Voter(ReplicaId(9, str(UUID(int=9))), "h:1"))
    assert alone.error(lambda done: alone.cluster_admin.change_voters(asked, done)) is RequestInvalid
