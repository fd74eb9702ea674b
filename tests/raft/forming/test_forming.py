"""Nodes form one cluster or none, whatever is lost, comes late or twice, and whoever crashes when."""

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from tests.raft.forming import walking
from tests.raft.forming.world import State, actions, begin, check, clusters, directory, fairly, perform

from duramen.raft.forming.machine import Forming
from duramen.raft.forming.values import (
    Belongs,
    ClusterProposal,
    FormationAttempt,
    FormationDiskState,
    FormationHello,
    FormationReply,
    PersistFormation,
    ProposeCluster,
    SendFormationMessage,
)
from duramen.raft.voters import NO_VOTERS, ReplicaId, Voter, Voters

ONE, TWO, THREE = (ReplicaId(node_id, directory(node_id)) for node_id in (1, 2, 3))
SEEDS = ("a", "b", "c")
EMPTY = FormationDiskState()


def explored(nodes: dict[str, int], most_crashes: int, most_states: int) -> tuple[set[State], bool]:
    """The worlds that can be, from the shortest way on; and whether these are all."""
    first = begin(nodes)
    seen, todo = {first}, deque([first])
    while todo and len(seen) < most_states:
        state = todo.popleft()
        crashes = [("crash", address) for address, _ in state.nodes] if state.crashes < most_crashes else []
        for action in [*actions(state), *crashes]:
            for after, _ in perform(state, action):
                if after.crashes <= most_crashes and after not in seen:
                    check(after)
                    seen.add(after)
                    todo.append(after)
    return seen, not todo


def assert_one_cluster(state: State) -> None:
    kept = [node.kept for _, node in state.nodes]
    assert len(clusters(state)) == 1
    assert all(one.cluster_id is not None for one in kept)


# -- all orders -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "crashes"), [({"a": 1}, 2), ({"a": 1, "b": 2}, 1)])
def test_there_is_one_cluster_in_every_order(nodes: dict[str, int], crashes: int) -> None:
    states, all_of_them = explored(nodes, crashes, 10_000)
    assert all_of_them
    assert any(clusters(state) for state in states)
    for state in sorted(states, key=repr)[::10]:
        assert_one_cluster(fairly(state, rounds=3))


@pytest.mark.long
def test_there_is_one_cluster_in_every_order_of_two_with_two_crashes() -> None:
    states, all_of_them = explored({"a": 1, "b": 2}, 2, 200_000)
    assert all_of_them
    assert len(states) > 50_000


@pytest.mark.long
def test_there_is_one_cluster_in_every_order_of_three_without_a_crash() -> None:
    states, all_of_them = explored(walking.ABC, 0, 300_000)
    assert all_of_them
    assert len(states) > 150_000


@pytest.mark.long
def test_there_is_one_cluster_in_the_shortest_orders_of_three_with_a_crash() -> None:
    states, _ = explored(walking.ABC, 1, 100_000)
    assert any(clusters(state) for state in states)


@pytest.mark.parametrize("seed", range(40))
def test_crashes_end_in_one_cluster(seed: int) -> None:
    assert_one_cluster(fairly(walking.with_crashes(seed, lose_disks=False)))


@pytest.mark.parametrize("seed", range(40))
def test_lost_disks_make_no_second_cluster(seed: int) -> None:
    state = fairly(walking.with_crashes(seed, lose_disks=True))
    assert len(clusters(state)) <= 1
    for _, node in state.nodes:
        promise = node.kept.promise
        # Who waits, waits for a directory that is gone, or for somebody who waits so.
        assert node.kept.cluster_id is not None or any(
            one.kept.promise is not None
            and one.kept.promise.attempt.proposer not in [other.me for _, other in state.nodes]
            for _, one in state.nodes
        ), promise


@pytest.mark.parametrize("seed", range(40))
def test_other_lists_make_no_second_cluster(seed: int) -> None:
    walking.with_lists(seed)


@pytest.mark.long
def test_many_lives() -> None:
    for seed in range(1000, 2000):
        assert_one_cluster(fairly(walking.with_crashes(seed, lose_disks=False)))
        walking.with_crashes(seed, lose_disks=True)
        walking.with_lists(seed)


# -- bugs that are planted ------------------------------------------------------------------------------


def promises_anybody(self: Forming, proposal: ClusterProposal) -> None:
    if self.proposal is None and self.me in proposal.voters:
        self._persist(self.kept._replace(promise=proposal))


def promises_in_memory(self: Forming, proposal: ClusterProposal) -> None:
    if self.proposal is None and self.me in proposal.voters and self.seeds == proposal.seeds:
        self.kept = self.kept._replace(promise=proposal)


def counts_a_majority(self: Forming, voters: Voters) -> None:
    if self.proposal is None:
        self.proposal = ClusterProposal(FormationAttempt(self.me, self.kept.attempt), self.seeds, voters)
        self.tick()
    attempt = self.proposal.attempt
    agreeing = [hello.sender for hello in self.heard.values() if hello.promised == attempt or hello.sender == self.me]
    if voters.majority(agreeing):
        self._belong(attempt.cluster_id, voters)


def begins_once(self: Forming) -> None:
    if self.kept.attempt == 0:
        self._persist(self.kept._replace(attempt=1))


def lets_go_too_soon(self: Forming, hello: FormationHello) -> None:
    promise = self.kept.promise
    if promise is None or self.cluster_id is not None:
        return
    if hello.cluster_id == promise.attempt.cluster_id:
        self._belong(promise.attempt.cluster_id, promise.voters)
    elif hello.cluster_id is None and hello.sender == promise.attempt.proposer:
        self._persist(self.kept._replace(promise=None))


@pytest.mark.parametrize(
    ("name", "wrong", "seed", "lose_disks"),
    [
        ("_consider", promises_anybody, 377, False),
        ("_consider", promises_in_memory, 55, True),
        ("_propose", counts_a_majority, 37, True),
        ("_begin", begins_once, 30, True),
        ("_weigh", lets_go_too_soon, 26, False),
    ],
)
def test_a_planted_bug_is_found(
    name: str, wrong: Callable[..., None], seed: int, lose_disks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Forming, name, wrong)
    with pytest.raises(AssertionError):
        walking.with_crashes(seed, lose_disks=True) if lose_disks else walking.with_lists(seed)


# -- one node -------------------------------------------------------------------------------------------


def alone(kept: FormationDiskState = EMPTY, seeds: tuple[str, ...] = SEEDS) -> Forming:
    """Node 1, which has found out that it is the seed `a`."""
    forming = Forming(ONE, kept, seeds)
    forming.itself("a")
    forming.take()
    return forming


def hello(me: ReplicaId, **but: Any) -> FormationHello:
    return FormationHello(me, SEEDS, 1)._replace(**but)


def proposed_by(me: ReplicaId, number: int = 1) -> ClusterProposal:
    voters = Voters(Voter(one, address) for one, address in zip((ONE, TWO, THREE), SEEDS, strict=True))
    return ClusterProposal(FormationAttempt(me, number), SEEDS, voters)


def test_what_is_said_is_on_disk_first() -> None:
    forming = Forming(ONE, EMPTY, SEEDS)
    assert forming.take() == [PersistFormation(FormationDiskState(attempt=1))]
    proposal = proposed_by(TWO)
    forming.asked(ProposeCluster(proposal), "request")
    promised = FormationDiskState(attempt=1, promise=proposal)
    assert forming.take() == [
        PersistFormation(promised),
        FormationReply("request", hello(ONE, promised=proposal.attempt)),
    ]
    forming.asked(ProposeCluster(proposal), "again")
    assert forming.take() == [FormationReply("again", hello(ONE, promised=proposal.attempt))]


def test_the_lowest_seed_proposes_and_forms_once_all_promised() -> None:
    forming = alone()
    forming.answered("b", hello(TWO))
    forming.answered("c", hello(THREE))
    proposal = proposed_by(ONE)
    assert forming.take() == [
        SendFormationMessage("b", ProposeCluster(proposal)),
        SendFormationMessage("c", ProposeCluster(proposal)),
    ]
    forming.answered("b", hello(TWO, promised=proposal.attempt))
    assert forming.take() == []
    assert forming.obstacle == "not all seeds have promised yet to form a cluster; missing: c"
    forming.answered("c", hello(THREE, promised=proposal.attempt))
    cluster_id = proposal.attempt.cluster_id
    formed = FormationDiskState(attempt=1, cluster_id=cluster_id, voters=proposal.voters)
    assert forming.take() == [PersistFormation(formed), Belongs(cluster_id, proposal.voters)]
    assert (forming.obstacle, forming.cluster_id) == ("", cluster_id)
    forming.tick()
    forming.asked(hello(TWO), 7)
    assert forming.take() == [FormationReply(7, hello(ONE, cluster_id=cluster_id))]
    assert Forming(ONE, formed, SEEDS).take() == [Belongs(cluster_id, proposal.voters)]


def test_a_later_node_joins_a_cluster_and_learns_its_voters() -> None:
    cluster_id = FormationAttempt(TWO, 1).cluster_id
    forming = Forming(ReplicaId(9, directory(9)), EMPTY, ("b", "c"))
    forming.take()
    forming.tick()
    assert [effect.address for effect in forming.take() if isinstance(effect, SendFormationMessage)] == ["b", "c"]
    forming.answered("c", hello(THREE, cluster_id=cluster_id))
    assert forming.take()[-1] == Belongs(cluster_id, NO_VOTERS)


def test_who_has_promised_comes_to_no_other_cluster() -> None:
    proposal, other = proposed_by(TWO), FormationAttempt(THREE, 1).cluster_id
    forming = alone(FormationDiskState(attempt=1, promise=proposal))
    forming.answered("c", hello(THREE, cluster_id=other))
    assert forming.take() == []
    assert forming.obstacle == (
        f"the cluster {proposal.attempt.cluster_id} was begun by node 2 with the directory {TWO.directory_id}, and"
        f" node 3 at c belongs to the cluster {other}: if this node is to join that one, start it with an empty"
        " directory"
    )


def test_a_promise_ends_with_a_later_attempt_of_the_same_directory() -> None:
    kept = FormationDiskState(attempt=1, promise=proposed_by(TWO, 5))
    for said, ends in ((hello(TWO, attempt=5), False), (hello(THREE, attempt=9), False), (hello(TWO, attempt=6), True)):
        forming = alone(kept)
        forming.asked(said, 0)
        assert (forming.hello.promised is None) == ends
    forming = alone(kept)
    forming.asked(ProposeCluster(proposed_by(TWO, 6)), 0)
    forming.asked(ProposeCluster(proposed_by(TWO, 5)), 0)
    forming.asked(ProposeCluster(proposed_by(THREE, 7)), 0)
    assert forming.hello.promised == FormationAttempt(TWO, 6)


def test_a_cluster_that_another_was_told_of_is_there() -> None:
    proposal = proposed_by(TWO)
    forming = alone(FormationDiskState(attempt=1, promise=proposal))
    forming.answered("c", hello(THREE, cluster_id=proposal.attempt.cluster_id))
    assert forming.take()[-1] == Belongs(proposal.attempt.cluster_id, proposal.voters)


def test_what_does_not_concern_it_is_not_promised() -> None:
    voters = Voters([Voter(TWO, "b"), Voter(THREE, "c")])
    for proposal in (proposed_by(TWO)._replace(voters=voters), proposed_by(TWO)._replace(seeds=("a", "b"))):
        forming = alone()
        forming.asked(ProposeCluster(proposal), 0)
        assert forming.take() == [FormationReply(0, hello(ONE))]


@pytest.mark.parametrize(
    ("heard", "line"),
    [
        ({}, "a cluster is formed once all seeds are there; missing: b, c"),
        ({"b": hello(TWO)}, "a cluster is formed once all seeds are there; missing: c"),
        (
            {"b": hello(TWO, seeds=("b", "c"))},
            "node 2 at b has the seeds b, c, and this node a, b, c: give all the same list",
        ),
        (
            {"b": hello(TWO), "c": hello(ReplicaId(2, directory(4)))},
            "the seeds b and c are different nodes with the node id 2: give each its own",
        ),
        ({"b": hello(TWO), "c": hello(TWO)}, "the seeds b and c are the same node, 2: name each once"),
        (
            {
                "b": hello(TWO, cluster_id=FormationAttempt(TWO, 1).cluster_id),
                "c": hello(THREE, cluster_id=FormationAttempt(THREE, 1).cluster_id),
            },
            (
                f"the seeds belong to different clusters, node 2 at b to {FormationAttempt(TWO, 1).cluster_id},"
                f" node 3 at c to {FormationAttempt(THREE, 1).cluster_id}: name seeds of one cluster"
            ),
        ),
        (
            {"b": hello(TWO), "c": hello(THREE, promised=FormationAttempt(TWO, 4))},
            (
                f"node 3 at c waits for the cluster {FormationAttempt(TWO, 4).cluster_id}, which was begun by node 2"
                f" with the directory {TWO.directory_id}"
            ),
        ),
        (
            {"b": hello(ReplicaId(0, directory(8))), "c": hello(THREE)},
            "node 0 has not formed the cluster yet",
        ),
    ],
)  # fmt: skip
def test_why_there_is_no_cluster_is_said_in_a_line(heard: dict[str, FormationHello], line: str) -> None:
    forming = Forming(ONE, EMPTY, SEEDS)
    for address, said in heard.items():
        forming.heard[address] = said
    forming.heard["a"] = forming.hello
    assert forming.obstacle == line
    assert forming.cluster_id is None


def test_a_node_that_is_no_seed_waits_for_a_cluster() -> None:
    forming = Forming(ReplicaId(9, directory(9)), EMPTY, SEEDS)
    for address, one in zip(SEEDS, (ONE, TWO, THREE), strict=True):
        forming.answered(address, hello(one))
    assert forming.obstacle == "this node is none of the seeds, and no seed belongs to a cluster yet"
    forming.lost("b")
    assert forming.obstacle == "a cluster is formed once all seeds are there; missing: b"


def test_a_promise_waits_for_who_asked_for_it() -> None:
    proposal = proposed_by(TWO)
    forming = alone(FormationDiskState(attempt=1, promise=proposal))
    assert forming.obstacle == (
        f"the cluster {proposal.attempt.cluster_id} was begun by node 2 with the directory {TWO.directory_id}, which"
        " has not said yet that it is there: start it; if that directory is lost, start every seed with an empty one"
    )


def test_a_seed_that_lost_its_disk_is_proposed_anew() -> None:
    forming = alone()
    forming.answered("b", hello(TWO))
    forming.answered("c", hello(THREE))
    forming.take()
    other = ReplicaId(3, directory(33))
    forming.answered("c", hello(other))
    persist, *sends = forming.take()
    assert persist == PersistFormation(FormationDiskState(attempt=2))
    proposals = [
        one.message.proposal
        for one in sends
        if isinstance(one, SendFormationMessage) and isinstance(one.message, ProposeCluster)
    ]
    assert [(proposal.attempt.number, other in proposal.voters) for proposal in proposals] == [(2, True)] * 2
