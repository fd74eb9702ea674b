"""Connections that close: who still reaches a majority leads on; who is gone is replaced without a timeout."""

import pytest
from tests.raft.site import CALM
from tests.raft.world import Node, World

from duramen.raft.ballots import Count
from duramen.raft.effects import Send
from duramen.raft.epochs import EpochEnd
from duramen.raft.machine import RaftMachine
from duramen.raft.messages import BeginEpoch, EntryBatch, Fetch, FetchAnswer, FetchSnapshot, SnapshotAnswer
from duramen.raft.replica import RaftDiskState
from duramen.raft.roles import RaftRole
from duramen.raft.timeouts import TIMEOUTS
from duramen.raft.voters import ReplicaId, Voter, Voters

SEEDS = range(40)


class Calm(World):
    """Nodes on a good network and good disks, of which one leads."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._lossy = self._twice = 0.0
        self._slow_ms, self._late, self._noticed = 2, 0.0, 1.0
        for node in self._nodes.values():
            node.disk_ms, node.site.timeouts = 3, CALM
            node.rate = 1.0
            self._crash(node)
            self._start(node)
        self.pass_by(1_000)

    def pass_by(self, for_ms: int) -> None:
        self._run_until(self._now_ms + for_ms)

    @property
    def now_ms(self) -> int:
        return self._now_ms

    @property
    def nodes(self) -> list[Node]:
        return list(self._nodes.values())

    def leader(self) -> Node:
        (leader,) = self._leaders()
        return leader

    @property
    def followers(self) -> list[Node]:
        leader = self.leader()
        return [node for node in self.nodes if node is not leader]

    def part(self, one: Node, two: Node) -> None:
        """Nothing gets from one to the other any more, and both notice."""
        a, b = one.site.me.node_id, two.site.me.node_id
        self._cut = self._cut | {(a, b), (b, a)}
        self._connection(one, two, is_open=False)

    def meet(self, one: Node, two: Node) -> None:
        """Everything does, and both notice."""
        a, b = one.site.me.node_id, two.site.me.node_id
        self._cut = self._cut - {(a, b), (b, a)}
        self._connection(one, two, is_open=True)

    def crash(self, node: Node) -> None:
        """It ends; what it said last has come by when its connections close."""
        self._cut = {(node.site.me.node_id, other) for other in self._nodes}
        self._crash(node)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_that_a_majority_reaches_is_not_disturbed(seed: int) -> None:
    world = Calm(seed)
    leader = world.leader()
    machine = leader.machine
    assert machine is not None
    epoch = machine.epoch
    lonely = world.followers[: (len(world.nodes) - 1) // 2]
    for _ in range(20):
        node = world.random.choice([leader, *lonely])
        for other in world.nodes if node is leader else lonely:
            if other is not node and (node is not leader or other in lonely):
                world.random.choice((world.part, world.meet))(node, other)
        world.pass_by(world.random.randrange(200))
        assert leader.machine is not None
        assert leader.machine.epoch == epoch
    for node in lonely:
        world.meet(leader, node)
    world.pass_by(100)
    assert all(node.machine is not None and node.machine.leader == leader.site.me for node in world.followers)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_that_ends_is_replaced_before_anybody_has_missed_an_answer(seed: int) -> None:
    world = Calm(seed)
    if len(world.nodes) < 3:
        return
    world.crash(world.leader())
    world.pass_by(CALM.fetch_ms // 2)
    leader = world.leader().machine
    assert leader is not None
    for node in world.nodes:
        assert node.machine is None or node.machine.leader == leader.me


def follower() -> tuple[RaftMachine, ReplicaId, Fetch]:
    """A follower, its leader, and what it asked that."""
    me, leader = ReplicaId(1, "a"), ReplicaId(2, "a")
    voters = Voters(map(Voter, [me, leader, ReplicaId(3, "a")]))
    machine = RaftMachine(me, RaftDiskState(voters=voters), now_ms=0, chance=lambda _: 0, timeouts=TIMEOUTS)
    machine.receive(BeginEpoch(leader, 1))
    return machine, leader, asked_by(machine)


def asked_by(machine: RaftMachine) -> Fetch:
    (fetch,) = (effect.message for effect in machine.take() if isinstance(effect, Send))
    assert isinstance(fetch, Fetch)
    return fetch


def test_a_late_answer_is_a_sign_of_life() -> None:
    machine, leader, fetch = follower()
    machine.receive(FetchAnswer(leader, 1, fetch, 0))
    earlier = asked_by(machine)
    machine.tick(TIMEOUTS.fetch_ms - 1)
    assert asked_by(machine) != earlier
    machine.receive(FetchAnswer(leader, 1, earlier, 0))
    assert not machine.take()
    roles = []
    for now_ms in (2 * TIMEOUTS.fetch_ms - 2, 2 * TIMEOUTS.fetch_ms - 1):
        machine.tick(now_ms)
        roles.append(machine.role)
    assert roles == [RaftRole.FOLLOWER, RaftRole.PROSPECTIVE]


def test_who_is_answered_later_than_it_asks_again_follows_all_the_same() -> None:
    """A round takes longer than asking again on a slow network, so that no answer is to the newest fetch."""
    machine, leader, fetch = follower()
    step_ms, round_ms, log_end = TIMEOUTS.wait_ms, TIMEOUTS.wait_ms + 2 * TIMEOUTS.retry_ms, 0
    on_its_way = [(0, fetch)]
    for now_ms in range(0, 20 * TIMEOUTS.fetch_ms, step_ms):
        machine.tick(now_ms)
        log_end = now_ms // (4 * step_ms)
        arrived = [asked for at_ms, asked in on_its_way if at_ms + round_ms <= now_ms]
        for asked in arrived:
            batches = tuple(EntryBatch(1, offset) for offset in range(asked.end.offset, log_end))
            machine.receive(FetchAnswer(leader, 1, asked, log_end, batches=batches))
            machine.synced(machine.end)
        sent = [effect.message for effect in machine.take() if isinstance(effect, Send)]
        on_its_way = on_its_way[len(arrived) :] + [(now_ms, asked) for asked in sent if isinstance(asked, Fetch)]
        assert len(on_its_way) <= 4
        assert (machine.role, machine.leader) == (RaftRole.FOLLOWER, leader)
    assert log_end - 1 <= machine.high_watermark <= log_end


def test_a_late_answer_of_a_leader_that_is_gone_is_none() -> None:
    machine, leader, fetch = follower()
    machine.receive(FetchAnswer(leader, 1, fetch, 0))
    earlier = asked_by(machine)
    machine.tick(TIMEOUTS.wait_ms + TIMEOUTS.retry_ms)
    machine.disconnected(leader.node_id)
    machine.receive(FetchAnswer(leader, 1, earlier, 0))
    machine.tick(TIMEOUTS.wait_ms + TIMEOUTS.retry_ms + 2 * TIMEOUTS.soon_ms)
    assert machine.role is RaftRole.PROSPECTIVE


def test_a_snapshot_that_takes_long_is_no_silence() -> None:
    machine, leader, fetch = follower()
    machine.receive(FetchAnswer(leader, 1, fetch, 9, snapshot=EpochEnd(1, 9)))
    for piece in range(1, 10):
        machine.tick(piece * TIMEOUTS.fetch_ms * 3 // 4)
        assert machine.role is RaftRole.FOLLOWER
        machine.heard(leader, 1)
    machine.heard(ReplicaId(3, "a"), 1)
    machine.heard(leader, 0)
    machine.tick(10 * TIMEOUTS.fetch_ms)
    assert machine.role is RaftRole.PROSPECTIVE


def test_a_snapshot_that_comes_later_than_it_is_asked_for_again_is_taken() -> None:
    machine, leader, fetch = follower()
    voters = machine.voters
    machine.receive(FetchAnswer(leader, 1, fetch, 9, snapshot=EpochEnd(1, 9)))
    machine.tick(TIMEOUTS.fetch_ms - 1)
    assert [type(effect.message) for effect in machine.take() if isinstance(effect, Send)] == [FetchSnapshot, Fetch]
    machine.receive(SnapshotAnswer(leader, 1, EpochEnd(1, 9), voters))
    assert machine.end == machine.start == EpochEnd(1, 9)
    assert machine.high_watermark == 9
    machine.take()
    machine.receive(SnapshotAnswer(leader, 1, EpochEnd(1, 9), voters))
    assert not machine.take()


def test_a_count_is_lost_where_those_that_are_left_are_no_majority() -> None:
    me, *others = [ReplicaId(node_id, "a") for node_id in range(1, 6)]
    count = Count(Voters(map(Voter, [me, *others])), me)
    assert not count.is_lost({2, 3})
    assert count.is_lost({2, 3, 4})
    count.take(others[0], granted=True)
    assert not count.is_lost({2, 3, 4}), "who has granted it and gone since has granted it"
    count.take(others[3], granted=False)
    assert count.is_lost({3, 4})


def most(below: int) -> int:
    """Always the most."""
    return below - 1


def test_the_waits_fit_together() -> None:
    waits = TIMEOUTS
    pause_ms = 300
    # A follower hears the leader at least so often, even where the leader's process stands still in between.
    assert waits.wait_ms + pause_ms < waits.fetch_ms
    # One that waits for its own disk fetches again in time.
    assert waits.retry_ms + 2 * waits.wait_ms < waits.fetch_ms
    # The last one to miss a leader that is silent was the wrong one to ask, and the first one asks again.
    most_ms = waits.silence_ms(most) + waits.wait_ms + waits.shortly_ms(most, 1)
    assert most_ms < 700
    assert [waits.shortly_ms(lambda _: 0, doublings) for doublings in (0, 1, 2, 40)] == [10, 20, 40, 225]
