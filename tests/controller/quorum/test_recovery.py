"""What a replica makes of its disk when it starts: a node that was alone, a quorum, and what must not start."""

from collections.abc import Sequence

import pytest
from tests.controller.quorum.node import Node
from tests.controller.quorum.world import World, voter_of
from tests.raft.witness import Witness

from duramen.base.errors import DirectoryUnusable, DuramenError, LogDamaged
from duramen.base.ids import Position
from duramen.controller.quorum.dependencies import QuorumLimits
from duramen.controller.quorum.recovery import QuorumIdentity
from duramen.controller.quorum.runner import Runner
from duramen.metadata.events import GroupConfigured
from duramen.raft.roles import RaftRole
from duramen.raft.voter_changes import VoterAddition, VoterChangeRefusal
from duramen.raft.voters import ReplicaId, Voter, Voters
from duramen.sim.machine.scheduler import VirtualClock


class Alone:
    """One node, and what it answers."""

    def __init__(self, *, founding: bool = True, limits: QuorumLimits | None = None) -> None:
        self.node = Node(1, "alone", VirtualClock(), Witness())
        founders = Voters([Voter(self.node.me)] if founding else ())
        self.node.plan = QuorumIdentity(self.node.me, founders, limits=QuorumLimits() if limits is None else limits)

    def start(self) -> Runner:
        """Start it. Raises DuramenError where it does not want to."""
        opened: list[Runner | DuramenError] = []
        self.node.start(opened.append)
        self.settle(lambda: bool(opened))
        if isinstance(opened[0], DuramenError):
            self.node.end()
            raise opened[0]
        return opened[0]

    def lead(self) -> Runner:
        """Start it until it leads and all that it had has taken effect."""
        runner = self.start()
        self.settle(lambda: runner.machine.role is RaftRole.LEADER and runner.applied == runner.machine.end)
        return runner

    def snapshots(self) -> list[str]:
        return [path for path in self.node.disk.paths() if path.endswith(".snapshot")]

    def settle(self, until: object) -> None:
        assert callable(until)
        process = self.node.process
        assert process is not None
        for _ in range(10_000):
            if until():
                return
            assert process.turn()
        raise AssertionError("it does not come to that")

    def propose(self, runner: Runner, *names: str) -> Position:
        """Propose, and wait for the commit."""
        answers: list[Position | DuramenError] = []
        runner.propose([GroupConfigured(name, {"a": "b"}) for name in names], answers.append)
        assert not answers
        self.settle(lambda: bool(answers))
        assert isinstance(answers[0], Position)
        return answers[0]

    def groups(self) -> Sequence[str]:
        return sorted(self.node.view.state.groups)


def test_a_quorum_of_one_commits_what_is_synced() -> None:
    alone = Alone()
    runner = alone.lead()
    first = alone.propose(runner, "a", "b")
    assert (first.offset, alone.groups()) == (2, ["a", "b"])
    alone.node.end()
    runner = alone.lead()
    assert alone.groups() == ["a", "b"]
    second = alone.propose(runner, "c")
    assert second > first
    assert second.leader_epoch > first.leader_epoch


def test_the_log_of_a_node_that_was_alone_is_a_quorum_of_one() -> None:
    alone = Alone(founding=False)
    events = alone.node.be_alone(3)
    before = alone.node.log.takeovers.latest_epoch
    runner = alone.lead()
    assert len(alone.groups()) == len(events)
    assert runner.machine.voters == Voters([Voter(alone.node.me)])
    assert runner.machine.epoch > before
    assert runner.machine.epoch >= alone.node.store.node_epoch
    position = alone.propose(runner, "later")
    assert position.leader_epoch == runner.machine.epoch
    alone.node.end()
    again = alone.lead()
    assert again.machine.epoch >= alone.node.store.node_epoch > position.leader_epoch
    assert len(alone.groups()) == len(events) + 1


def test_a_replica_with_an_empty_disk_is_nobody() -> None:
    alone = Alone(founding=False)
    runner = alone.start()
    assert runner.machine.voters == Voters()
    assert runner.machine.role is RaftRole.UNATTACHED


def test_a_start_of_one_of_several_does_not_raise_the_epoch() -> None:
    for snapshot_bytes in (100, 1 << 20):
        quorum = World(3)
        quorum.limits = QuorumLimits(snapshot_bytes=snapshot_bytes)
        quorum.found(2, grown=True)
        quorum.run_until(2_000_000)
        first, other = quorum.nodes
        (leader,) = quorum.leaders()
        assert leader is first
        assert leader.runner is not None
        assert leader.runner.change(VoterAddition(voter_of(other))) is not VoterChangeRefusal.NOT_LEADER
        quorum.run_until(3_000_000)
        assert len(leader.runner.machine.voters) == 2
        answers: list[Position | DuramenError] = []
        leader.runner.propose([GroupConfigured("a", {"b": "c"})], answers.append)
        quorum.run_until(3_500_000)
        epoch = leader.runner.machine.epoch
        for _ in range(3):
            quorum.end(first, power=False)
            first.plan = first.plan._replace(timeouts=first.plan.timeouts._replace(election_ms=10_000))
            quorum.start(first)
            quorum.run_until(quorum.clock.now_us + 30_000)
        assert first.runner is not None
        assert first.store.node_epoch > epoch + 1
        assert first.runner.machine.epoch <= epoch + 1
        assert (first.runner.machine.start.offset > 0) == (snapshot_bytes == 100)


def test_a_ballot_that_is_gone_or_older_is_no_reason_to_vote_again() -> None:
    alone = Alone()
    alone.lead()
    alone.node.end()
    older = alone.node.disk.content("quorum/ballot")
    alone.propose(alone.lead(), "a")
    alone.node.end()
    newer = alone.node.disk.content("quorum/ballot")
    alone.node.disk.replace("quorum/ballot", older)
    with pytest.raises(LogDamaged, match="older copy"):
        alone.start()
    alone.node.disk.lose("quorum/ballot")
    with pytest.raises(LogDamaged, match="ballot is gone"):
        alone.start()
    alone.node.disk.open("quorum/ballot", create=True).write([newer], 0)
    alone.lead()
    assert alone.groups() == ["a"]


def test_a_damaged_ballot_names_its_file() -> None:
    alone = Alone()
    alone.lead()
    alone.node.end()
    alone.node.disk.corrupt("quorum/ballot", 20)
    with pytest.raises(LogDamaged, match=r"quorum/ballot.* is damaged: .*may not vote"):
        alone.start()


def test_a_directory_is_of_one_node() -> None:
    alone = Alone()
    alone.lead()
    alone.node.end()
    alone.node.plan = alone.node.plan._replace(me=ReplicaId(2, alone.node.me.directory_id))
    with pytest.raises(DirectoryUnusable, match="started as 2/"):
        alone.start()


def test_snapshots_stand_for_the_log_before_them() -> None:
    alone = Alone(limits=QuorumLimits(snapshot_bytes=500))
    runner = alone.lead()
    for number in range(40):
        alone.propose(runner, f"g{number}")
    alone.settle(lambda: runner.machine.start.offset > 20 and len(alone.snapshots()) == 2)
    kept = alone.snapshots()
    alone.node.end()
    runner = alone.lead()
    assert runner.machine.start.offset > 20
    assert len(alone.groups()) == 40
    alone.node.end()
    # The newest is damaged, and the log behind the one before it is not there any more.
    alone.node.disk.corrupt(max(kept), 40)
    with pytest.raises(LogDamaged, match="no sound snapshot"):
        alone.start()
    assert any(max(kept) in report for report in alone.node.reports)


def _proposed(quorum: World, names: Sequence[str]) -> None:
    """The leader commits these groups, one after another."""
    for name in names:
        (leader,) = quorum.leaders()
        assert leader.runner is not None
        answers: list[Position | DuramenError] = []
        leader.runner.propose([GroupConfigured(name, {"a": "b" * 50})], answers.append)
        quorum.run_until(quorum.clock.now_us + 200_000)
        assert isinstance(answers[0], Position)


def _damage(quorum: World, node: Node, name: bytes) -> None:
    """End a node that does not lead and flip a bit of that group's record in a segment of its metadata log."""
    quorum.end(node, power=False)
    path, content = next((one, node.disk.content(one)) for one in node.disk.paths() if _holds(node, one, name))
    node.disk.corrupt(path, content.index(name))


def _holds(node: Node, path: str, name: bytes) -> bool:
    return path.endswith(".log") and name in node.disk.content(path)


@pytest.mark.parametrize("snapshot_bytes", [1 << 20, 1_500], ids=["the log is whole", "a snapshot holds its beginning"])
def test_a_damaged_metadata_log_is_fetched_again_before_its_voter_is_counted_on(snapshot_bytes: int) -> None:
    quorum = World(3)
    quorum.limits = QuorumLimits(snapshot_bytes=snapshot_bytes)
    quorum.found(3)
    quorum.run_until(2_000_000)
    names = [f"group-{number}" for number in range(20)]
    _proposed(quorum, names)
    node = next(one for one in quorum.nodes if one not in quorum.leaders())
    quorum.end(node, power=False)
    quorum.run_until(quorum.clock.now_us + 2_000_000)
    _damage(quorum, node, b"group-17")
    quorum.run_until(quorum.clock.now_us + 2_000_000)
    assert any("fetched again from the leader" in report for report in node.reports)
    assert any("does not vote until" in report for report in node.reports)
    assert any("this node votes" in report for report in node.reports)
    assert node.runner is not None
    assert not node.runner.machine.damaged
    assert sorted(node.view.state.groups) == sorted(names)
    others = [one for one in quorum.nodes if one is not node]
    quorum.end(others[0], power=False)  # with the one that is left it is a majority
    _proposed(quorum, [])
    quorum.run_until(quorum.clock.now_us + 1_000_000)
    _proposed(quorum, ["last"])


def test_a_voter_whose_snapshots_are_damaged_begins_anew() -> None:
    quorum = World(3)
    quorum.limits = QuorumLimits(snapshot_bytes=500)
    quorum.found(3)
    quorum.run_until(2_000_000)
    names = [f"group-{number}" for number in range(20)]
    _proposed(quorum, names)
    node = next(one for one in quorum.nodes if one not in quorum.leaders())
    quorum.end(node, power=False)
    for path in node.disk.paths():
        if path.endswith(".snapshot"):
            node.disk.corrupt(path, 40)
    quorum.run_until(quorum.clock.now_us + 2_000_000)
    assert any("it is deleted" in report for report in node.reports)
    assert node.runner is not None
    assert not node.runner.machine.damaged
    assert sorted(node.view.state.groups) == sorted(names)
