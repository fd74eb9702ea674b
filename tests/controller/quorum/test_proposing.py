"""Proposals to a quorum of three: answered once they are committed and have taken effect, and honestly otherwise."""

import errno
from collections.abc import Sequence

import pytest
from tests.controller.quorum.node import Node
from tests.controller.quorum.world import World

from duramen.base.errors import BatchTooLarge, DuramenError, NodeStopping, NotController, OutcomeUnknown, StorageFailed
from duramen.base.ids import Position
from duramen.controller.quorum.dependencies import QuorumLimits
from duramen.controller.quorum.runner import Runner
from duramen.metadata.events import GroupConfigured
from duramen.raft.description import UNKNOWN

Answers = list[Position | DuramenError]


def events(*names: str) -> Sequence[GroupConfigured]:
    return [GroupConfigured(name, {"a": "b"}) for name in names]


def runner_of(node: Node) -> Runner:
    assert node.runner is not None
    return node.runner


class Quorum(World):
    """Three nodes of which one leads, and nothing goes wrong but what a test does."""

    def __init__(self, limits: QuorumLimits | None = None) -> None:
        super().__init__(7)
        self.failures: list[DuramenError] = []
        self.limits = self.limits if limits is None else limits
        self.found(3)
        for node in self.nodes:
            node.failed_with = lambda _, error: self.failures.append(error)
        self.go_on(1_000)
        (self.leader,) = self.leaders()
        self.others = [node for node in self.nodes if node is not self.leader]

    def go_on(self, for_ms: int) -> None:
        """Let so much time go by."""
        self.run_until(self.clock.now_us + 1000 * for_ms)

    def propose(self, *names: str) -> Answers:
        """Propose to the leader."""
        answers: Answers = []
        runner_of(self.leader).propose(events(*names), answers.append)
        return answers

    def cut_off(self, node: Node) -> None:
        """Nothing gets to a node or from it."""
        me = node.node_id
        self.cut = {pair for other in self.nodes for pair in ((me, other.node_id), (other.node_id, me))}

    def new_leader(self) -> Node:
        """Who leads instead of the first leader."""
        return next(node for node in self.leaders() if node is not self.leader)


def test_a_proposal_is_answered_once_it_has_taken_effect() -> None:
    quorum = Quorum()
    order: list[tuple[str, bool]] = []
    leader = quorum.leader

    def done(name: str, answer: Position | DuramenError) -> None:
        assert isinstance(answer, Position)
        order.append((name, name in leader.view.state.groups))

    for name in ("a", "b", "c"):
        runner_of(leader).propose(events(name), lambda answer, name=name: done(name, answer))  # type: ignore[misc]
    assert order == []
    quorum.go_on(300)
    assert order == [("a", True), ("b", True), ("c", True)]
    assert all(set(node.view.state.groups) == {"a", "b", "c"} for node in quorum.nodes)


def test_a_minority_never_answers() -> None:
    quorum = Quorum()
    quorum.cut_off(quorum.leader)
    answers = quorum.propose("lost")
    quorum.go_on(150)
    assert answers == []
    quorum.go_on(1_500)
    assert [type(answer) for answer in answers] == [OutcomeUnknown]
    instead: Answers = []
    runner_of(quorum.new_leader()).propose(events("kept"), instead.append)
    quorum.cut = set()
    quorum.go_on(1_000)
    assert [type(answer) for answer in instead] == [Position]
    assert all(list(node.view.state.groups) == ["kept"] for node in quorum.nodes)
    assert quorum.leader.content == quorum.new_leader().content


def test_what_is_unknown_may_be_committed_by_the_next_leader() -> None:
    quorum = Quorum()
    me = quorum.leader.node_id
    quorum.cut = {(other.node_id, me) for other in quorum.others}  # all hear it, and it hears nobody
    parked = quorum.propose("heard")
    quorum.go_on(1_500)
    assert [type(answer) for answer in parked] == [OutcomeUnknown]
    quorum.cut = set()
    quorum.go_on(1_000)
    assert all(list(node.view.state.groups) == ["heard"] for node in quorum.nodes)


def test_who_does_not_lead_says_who_does() -> None:
    quorum = Quorum()
    answers: Answers = []
    runner_of(quorum.others[0]).propose(events("a"), answers.append)
    assert isinstance(answers[0], NotController)
    assert f"node {quorum.leader.node_id} does" in str(answers[0])


def test_more_than_fits_is_refused_and_nothing_is_ordered() -> None:
    quorum = Quorum(QuorumLimits(batch_bytes=500))
    end = runner_of(quorum.leader).machine.end
    answers = quorum.propose(*(f"g{number}" for number in range(40)))
    assert [type(answer) for answer in answers] == [BatchTooLarge]
    assert runner_of(quorum.leader).machine.end == end


def test_leadership_moves_under_load_and_no_answer_is_wrong() -> None:
    quorum = Quorum()
    for round_ in range(60):
        for node in quorum.leaders():
            quorum.propose_at(node, runner_of(node))
            if round_ % 12 == 0:
                runner_of(node).resign()
        quorum.go_on(20)
    quorum.go_on(500)
    counts = quorum.counts
    assert counts["answered"] > 20
    assert counts["unknown"] > 2
    assert len(quorum.witness.leaders) > 4


def test_a_leader_whose_disk_fails_follows_without_a_vote_and_another_leads() -> None:
    quorum = Quorum()

    def fail(call: str, _: str, size: int) -> int:
        if call == "sync":
            raise OSError(errno.EIO, "the disk")
        return size

    quorum.leader.disk.interfere = fail
    answers = quorum.propose("a")
    quorum.go_on(1_500)
    assert [type(answer) for answer in answers] == [OutcomeUnknown]
    assert [type(error) for error in quorum.failures] == [StorageFailed]
    refused: Answers = []
    runner_of(quorum.leader).propose(events("b"), refused.append)
    assert [type(answer) for answer in refused] == [NotController]
    failed, leader = runner_of(quorum.leader), runner_of(quorum.new_leader())
    assert leader.describe().leader_id == quorum.new_leader().node_id
    kept = failed.machine.synced_offset
    committed: Answers = []
    leader.propose(events("c"), committed.append)
    quorum.go_on(500)
    assert [type(answer) for answer in committed] == [Position]
    assert failed.applied == leader.applied  # what the cluster decides is known there
    assert failed.machine.synced_offset == kept < leader.applied.offset


def test_a_leader_that_stops_lets_another_lead_at_once() -> None:
    quorum = Quorum()
    answers = quorum.propose("a")
    runner_of(quorum.leader).stop()
    assert [type(answer) for answer in answers] == [OutcomeUnknown]
    assert isinstance(runner_of(quorum.leader).error, NodeStopping)
    quorum.go_on(60)
    assert quorum.new_leader() in quorum.others


def test_the_quorum_is_described_as_its_leader_sees_it() -> None:
    quorum = Quorum()
    quorum.propose("a", "b")
    quorum.go_on(300)
    quorum.cut_off(quorum.others[1])
    quorum.propose("c")
    quorum.go_on(100)
    described = runner_of(quorum.leader).describe()
    end = runner_of(quorum.leader).machine.end
    assert (described.leader_id, described.leader_epoch) == (quorum.leader.node_id, end.epoch)
    assert described.high_watermark == end.offset
    rows = {row.replica: row for row in described.voters}
    now_ms = quorum.clock.wall_ms()
    mine, there, gone = (rows[node.me] for node in (quorum.leader, *quorum.others))
    assert (mine.log_end_offset, mine.synced_offset, mine.caught_up_ms) == (end.offset, end.offset, now_ms)
    assert (there.log_end_offset, there.synced_offset) == (end.offset, end.offset)
    assert gone.log_end_offset == end.offset - 1
    assert gone.fetched_ms < there.fetched_ms <= now_ms
    assert described.observers == ()
    assert {voter.endpoint for voter in described.endpoints} == {f"host{node}:{9000 + node}" for node in (1, 2, 3)}
    follower = runner_of(quorum.others[0]).describe()
    assert {row.log_end_offset for row in follower.voters} == {UNKNOWN}


@pytest.mark.parametrize("chunk_bytes", [50, 1 << 20])
def test_a_follower_behind_the_log_gets_the_snapshot_in_chunks(chunk_bytes: int) -> None:
    quorum = Quorum(QuorumLimits(snapshot_bytes=300, chunk_bytes=chunk_bytes))
    behind = quorum.others[0]
    quorum.cut_off(behind)
    for number in range(20):
        quorum.propose(f"g{number}")
        quorum.go_on(20)
    assert runner_of(quorum.leader).machine.start.offset > behind.log.end_offset
    quorum.cut = set()
    quorum.go_on(1_500)
    assert behind.installs == 1
    assert behind.view.image() == quorum.leader.view.image()
    assert behind.log.start_offset > 0
    assert len(behind.view.state.groups) == 20
