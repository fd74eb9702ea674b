"""The active controller: what it decides rests on what it has proposed, and what it says on what is committed."""

import errno
from uuid import UUID

import pytest
from tests.controller.active.node import SESSIONS, ControlNode
from tests.controller.active.world import ControlWorld

from duramen.base.errors import (
    BatchTooLarge,
    DuramenError,
    NodeDuplicate,
    NodeEpochStale,
    NodeNotFound,
    NotController,
    OutcomeUnknown,
    RequestTimedOut,
    StreamExists,
)
from duramen.broker.control import requests
from duramen.broker.control.requests import Request
from duramen.broker.control.responses import Answer, Beaten, Block, IsrAnswers, Outcome, Planned, Registered
from duramen.controller.membership.lifecycle import LifecyclePhase
from duramen.controller.quorum.dependencies import QuorumLimits
from duramen.metadata.alter_partition import AlterPartitionRefusal, InSyncMember, InSyncProposal
from duramen.metadata.decisions import Definition
from duramen.metadata.heartbeats import Heartbeat
from duramen.metadata.partitions import PartitionId
from duramen.metadata.registration import Registration
from duramen.metadata.snapshot import encode_snapshot


class Cluster(ControlWorld):
    """Three voters and two nodes that follow, all live, and nothing goes wrong but what a test does."""

    def __init__(self, limits: QuorumLimits | None = None) -> None:
        super().__init__(11)
        self.limits = self.limits if limits is None else limits
        self.gather(3, 2)
        self.go_on(1_000)
        assert all(node.lifecycle.phase is LifecyclePhase.LIVE for node in self.parts())

    @property
    def leader(self) -> ControlNode:
        assert self.active is not None
        return self.active

    def decide(self, request: Request) -> list[Outcome]:
        """Ask the active controller itself."""
        outcomes: list[Outcome] = []
        assert self.leader.controller is not None
        self.leader.controller.ask(request, outcomes.append)
        return outcomes

    def decided(self, request: Request) -> Outcome:
        """What it answers."""
        outcomes = self.decide(request)
        self.go_on_until(lambda: outcomes, 500)
        return outcomes[0]

    def isolate(self, node: ControlNode) -> None:
        """Nothing gets to a node or from it."""
        me = node.node_id
        self.cut = {pair for other in self.nodes for pair in ((me, other.node_id), (other.node_id, me))}

    def place(self, name: str, partition: int = 0) -> PartitionId:
        return PartitionId(self.auditor.state.streams[name].id, partition)


def create(name: str, partitions: int = 1, factor: int = 3) -> requests.CreateStream:
    return requests.CreateStream(Definition(name, partitions), factor)


def kinds(*answers: list[Outcome]) -> list[list[type]]:
    return [[type(answer) for answer in one] for one in answers]


def test_two_wishes_for_one_name_are_decided_in_their_order() -> None:
    cluster = Cluster()
    first, second = cluster.decide(create("a")), cluster.decide(create("a"))
    assert (first, second) == ([], [])
    cluster.go_on(100)
    assert kinds(first, second) == [[Answer], [StreamExists]]
    assert list(cluster.auditor.state.streams) == ["a"]


def test_nothing_is_said_that_rests_on_what_is_not_committed() -> None:
    cluster = Cluster()
    old = cluster.leader
    cluster.isolate(old)
    made, refused, read = cluster.decide(create("a")), cluster.decide(create("a")), cluster.decide(requests.PlanMoves())
    cluster.go_on(150)
    assert (made, refused, read) == ([], [], [])
    cluster.go_on(1_500)
    assert kinds(made, refused, read) == [[OutcomeUnknown], [NotController], [NotController]]
    cluster.cut = set()
    cluster.go_on(500)
    assert cluster.leader is not old
    assert not cluster.auditor.state.streams


def test_whose_disk_fails_says_nothing_more_even_before_anybody_ends_it() -> None:
    cluster = Cluster()
    old, controller = cluster.leader, cluster.leader.controller
    assert controller is not None
    old.controller = None  # so that it is not ended with its quorum's replica

    def fail(_call: str, _path: str, _size: int) -> int:
        raise OSError(errno.EIO, "the disk")

    old.disk.interfere = fail
    made: list[Outcome] = []
    again: list[Outcome] = []
    controller.ask(create("a"), made.append)
    cluster.go_on_until(lambda: made, 500)
    controller.ask(create("a"), again.append)
    assert kinds(made, again) == [[OutcomeUnknown], [NotController]]


def test_a_session_begins_before_its_registration_is_committed() -> None:
    cluster = Cluster()
    wish = Registration(9, str(UUID(int=1)), "x", "c")
    first = cluster.decide(requests.Register(wish))
    second = cluster.decide(requests.Register(wish._replace(directory_id=str(UUID(int=2)), incarnation_id="y")))
    again = cluster.decide(requests.Register(wish))
    cluster.go_on(100)
    assert kinds(first, second, again) == [[Answer], [NodeDuplicate], [Answer]]
    assert isinstance(first[0], Answer)
    assert isinstance(again[0], Answer)
    assert first[0].value == again[0].value == Registered(cluster.auditor.end_offset)


def test_what_the_quorum_does_not_take_is_forgotten() -> None:
    cluster = Cluster(QuorumLimits(batch_bytes=1_500))
    waits = cluster.decide(create("a"))
    large = cluster.decide(create("large", 100))
    next_ = cluster.decide(create("b"))
    assert kinds(large) == [[BatchTooLarge]]
    cluster.go_on(100)
    assert kinds(waits, next_) == [[Answer], [Answer]]
    assert list(cluster.auditor.state.streams) == ["a", "b"]


def test_a_node_that_is_not_active_says_who_leads() -> None:
    cluster = Cluster()
    outcomes: list[Outcome] = []
    other = cluster.part(4)
    assert other.controller is not None
    other.controller.ask(create("a"), outcomes.append)
    assert isinstance(outcomes[0], NotController)
    assert f"node {cluster.leader.node_id} leads" in str(outcomes[0])


def test_what_it_decides_on_is_what_its_log_adds_up_to() -> None:
    cluster = Cluster()
    cluster.auditor.deleting = {f"s{number}" for number in range(7)}
    for number in range(8):
        cluster.decide(create(f"s{number}", 2))
        cluster.decide(requests.GrowStream(f"s{number}", 3))
        cluster.decide(requests.ConfigureStream(f"s{number}", {"min.insync.replicas": "2"}))
        cluster.decide(requests.ConfigureNode(None, {"log.retention.ms": str(1000 + number)}))
        cluster.decide(requests.AlterQuotas((("user", f"u{number}"),), [("producer_byte_rate", 1000.0)]))
        cluster.decide(requests.DeleteStream(f"s{number - 1}"))
    cluster.part(2).lifecycle.drain()
    cluster.go_on(300)
    controller = cluster.leader.controller
    assert controller is not None
    assert controller.active is not None
    assert encode_snapshot(controller.active.ahead) == encode_snapshot(cluster.auditor.state)
    assert encode_snapshot(controller.state) == encode_snapshot(cluster.auditor.state)
    assert list(cluster.auditor.state.streams) == ["s7"]


def test_leaders_propose_several_partitions_and_each_is_judged() -> None:
    cluster = Cluster()
    cluster.decided(create("a", 2))
    state = cluster.auditor.state
    partition = state.partitions.get(cluster.place("a"))
    assert partition is not None
    members = {node.id: InSyncMember(node.id, node.epoch) for node in state.registrations}
    leader = members[partition.leader or 0]
    fewer = tuple(members[one] for one in partition.isr[:2])
    proposal = InSyncProposal(cluster.place("a"), leader, partition.leader_epoch, partition.partition_epoch, fewer)
    stale = proposal._replace(leader=leader._replace(epoch=0))
    outcome = cluster.decided(requests.AlterPartitions((proposal, proposal, stale)))
    assert isinstance(outcome, Answer)
    assert isinstance(outcome.value, IsrAnswers)
    taken, again, refused = outcome.value.answers
    assert taken.refusal is None
    assert taken.partition is not None
    assert set(taken.partition.isr) == set(partition.isr[:2])
    assert (again.refusal, refused.refusal) == (
        AlterPartitionRefusal.INVALID_UPDATE_VERSION,
        AlterPartitionRefusal.STALE_BROKER_EPOCH,
    )


def test_users_move_what_is_there() -> None:
    cluster = Cluster()
    cluster.decided(create("a", 1, 2))
    place = cluster.place("a")
    partition = cluster.auditor.state.partitions.get(place)
    assert partition is not None
    first, second = partition.replicas
    assert isinstance(cluster.decided(requests.MoveLeader(place, second)), Answer)
    moved = cluster.auditor.state.partitions.get(place)
    assert moved is not None
    assert moved.leader == second
    assert isinstance(cluster.decided(requests.ElectLeader(place)), Answer)
    planned = cluster.decided(requests.PlanMoves((first,)))
    assert isinstance(planned, Answer)
    assert isinstance(planned.value, Planned)
    assert cluster.decided(requests.BeginMoves(planned.value.moves, 1)) != planned
    cluster.go_on(300)
    emptied = cluster.auditor.state.partitions.get(place)
    assert emptied is not None
    assert first not in emptied.replicas
    assert len(emptied.replicas) == 2


def test_blocks_of_producer_ids_are_nobody_elses() -> None:
    cluster = Cluster()
    answers = [cluster.decide(requests.AllocateProducerIds()) for _ in range(3)]
    cluster.go_on(100)
    blocks = [outcome.value for (outcome,) in answers if isinstance(outcome, Answer)]
    assert blocks == [Block(1, 1000), Block(1001, 1000), Block(2001, 1000)]


def test_a_node_is_taken_out_once_it_is_gone_and_empty() -> None:
    cluster = Cluster()
    gone = cluster.part(5)
    refused = cluster.decided(requests.UnregisterNode(5))
    assert isinstance(refused, DuramenError)
    assert "is live" in str(refused)
    gone.end()
    cluster.go_on(SESSIONS.timeout_ms + 100)
    assert isinstance(cluster.decided(requests.UnregisterNode(5)), Answer)
    assert isinstance(cluster.decided(requests.Beat(Heartbeat(5, gone.lifecycle.epoch, 0))), NodeNotFound)
    assert isinstance(cluster.decided(requests.DrainNode(5)), NodeNotFound)


def test_a_heartbeat_of_an_old_registration_says_nothing() -> None:
    cluster = Cluster()
    assert isinstance(cluster.decided(requests.Beat(Heartbeat(4, 1, 0))), NodeEpochStale)
    epoch = cluster.part(4).lifecycle.epoch
    outcome = cluster.decided(requests.Beat(Heartbeat(4, epoch, epoch)))
    assert isinstance(outcome, Answer)
    assert outcome.value == Beaten(fenced=False, caught_up=True)


def test_a_wait_ends_when_it_is_too_late() -> None:
    cluster = Cluster()
    cluster.pause(4, 350)
    cluster.decided(create("a"))
    waits = cluster.decide(requests.AwaitApplied(cluster.auditor.end_offset, 50))
    cluster.go_on(45)
    assert waits == []
    cluster.go_on(10)
    assert kinds(waits) == [[RequestTimedOut]]


def test_who_was_waited_for_no_more_is_live_again_only_with_what_it_lacked() -> None:
    cluster = Cluster()
    cluster.cut = {(one, 4) for one in (1, 2, 3)}  # it is heard, and hears nothing
    cluster.pause(4, 450)
    cluster.decided(create("a"))
    said = cluster.decide(requests.AwaitApplied(cluster.auditor.end_offset, 1_000))
    cluster.go_on(440)
    assert kinds(said) == [[Answer]]
    epoch = cluster.part(4).lifecycle.epoch
    behind = cluster.decided(requests.Beat(Heartbeat(4, epoch, epoch)))
    assert isinstance(behind, Answer)
    assert behind.value == Beaten(fenced=True, caught_up=False)
    there = cluster.decided(requests.Beat(Heartbeat(4, epoch, cluster.auditor.end_offset)))
    assert isinstance(there, Answer)
    assert there.value == Beaten(fenced=False, caught_up=True)


def test_a_controller_that_slept_fences_nobody_at_once() -> None:
    cluster = Cluster()
    controller = cluster.leader.controller
    assert controller is not None
    active = controller.active
    assert active is not None
    # Only the clock goes on: what nodes have sent lies unread.
    cluster.clock.now_us += 1000 * (2 * SESSIONS.timeout_ms)
    active.tick()
    cluster.go_on(100)
    assert cluster.auditor.silences == 0
    assert len(cluster.auditor.state.registrations.live) == 5


@pytest.mark.parametrize("down", [True, False])
def test_a_closed_connection_is_a_short_session(down: bool) -> None:
    cluster = Cluster()
    if down:
        cluster.part(4).end()
    cluster.close(4)
    cluster.go_on(SESSIONS.grace_ms + 30)
    assert (4 in cluster.auditor.state.registrations.live) is not down


def test_a_connection_that_was_closed_counts_for_the_next_controller() -> None:
    cluster = Cluster()
    old = cluster.leader
    old.end()
    cluster.close(old.node_id)
    cluster.go_on_until(lambda: cluster.active is not None, 1_000)
    cluster.go_on(SESSIONS.grace_ms + 30)
    assert old.node_id not in cluster.auditor.state.registrations.live
    assert cluster.auditor.silences == 1


def test_a_node_that_is_missing_after_a_cold_start_is_soon_fenced() -> None:
    cluster = Cluster()
    parts = [cluster.part(number) for number in range(1, 6)]
    for part in parts:
        part.end()
    for part in parts[:-1]:
        cluster.start(part)
    cluster.go_on_until(lambda: cluster.active is not None, 1_000)
    assert 5 in cluster.auditor.state.registrations.live
    cluster.go_on(SESSIONS.absent_ms + 30)
    assert cluster.auditor.state.registrations.live == {1, 2, 3, 4}
    assert cluster.auditor.silences == 1


def test_leaders_return_to_preferred_replicas_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ControlNode, "rebalance_ms", 500)
    cluster = Cluster()
    cluster.decided(create("a", 3))
    cluster.go_on(600)
    places = [cluster.place("a", partition) for partition in range(3)]
    state = cluster.auditor.state
    preferred = {where: known.preferred for where in places if (known := state.partitions.get(where)) is not None}
    for where in places:
        known = state.partitions.get(where)
        assert known is not None
        assert isinstance(cluster.decided(requests.MoveLeader(where, known.replicas[1])), Answer)

    def leaders() -> dict[PartitionId, int | None]:
        return {where: known.leader for where in places if (known := state.partitions.get(where)) is not None}

    assert leaders() != preferred
    cluster.go_on(600)
    assert leaders() == preferred


def test_nobody_is_fenced_who_is_heard_while_controllers_come_and_go() -> None:
    cluster = Cluster()
    epochs = len(cluster.actives)
    for round_ in range(30):
        runner = cluster.leader.runner
        assert runner is not None
        runner.resign()
        cluster.close(1 + round_ % 5)
        cluster.go_on(100)
        cluster.go_on_until(lambda: cluster.active is not None, 500)
    assert len(cluster.actives) > epochs + 15
    assert cluster.auditor.silences == 0
