"""Where replicas go, and how plans spread them: distinct, over racks as evenly as can be, then by number."""

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.examples import examples
from tests.metadata.cluster.building import add_stream, answered, partition_at, site_with
from tests.metadata.cluster.site import Site

from duramen.base.errors import PartitionsInvalid, ReplicaAssignmentInvalid, ReplicationFactorInvalid
from duramen.metadata.decisions import Definition
from duramen.metadata.fencing import drain, fence
from duramen.metadata.nodes import CONTROLLER_ROLE
from duramen.metadata.partitions import PartitionId
from duramen.metadata.placement import check_assignment, place
from duramen.metadata.rebalance import MoveReason, ReplicaMove, begin_moves, cancel_moves, plan, progress
from duramen.metadata.registration import Registration
from duramen.metadata.streams import create_replicated, grow_replicated

RACKS = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=7)


def spread(site: Site, replicas: Sequence[int]) -> bool:
    """Whether no rack has two more of the replicas than one that could have another."""
    racks = {node.id: node.rack for node in site.state.registrations}
    size, used = Counter(racks.values()), Counter(racks[node_id] for node_id in replicas)
    return all(used[rack] >= min(max(used.values()) - 1, size[rack]) for rack in size)


@given(RACKS, st.integers(1, 30), st.integers(1, 7))
def test_placement_is_distinct_and_even(racks: list[str | None], partitions: int, factor: int) -> None:
    site = site_with(*racks)
    if factor > len(racks):
        with pytest.raises(ReplicationFactorInvalid, match=str(factor)):
            place(site.state, partitions, factor)
        return
    placed = place(site.state, partitions, factor)
    assert placed == place(site.state.copy(), partitions, factor)
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert spread(site, replicas)
    if len(set(racks)) == 1:
        load = Counter(node_id for replicas in placed for node_id in replicas)
        loads = [load[node.id] for node in site.state.registrations]
        assert max(loads) - min(loads) <= 1


@given(st.integers(2, 6), st.integers(1, 40), st.integers(1, 6))
def test_leaders_and_the_next_ones_to_lead_are_spread(nodes: int, partitions: int, factor: int) -> None:
    site = site_with(*[None] * nodes)
    factor = min(factor, nodes)
    first = Counter(replicas[0] for replicas in place(site.state, partitions, factor))
    assert max(first.values()) <= -(-partitions // nodes) + 1
    if factor == nodes:
        assert max(first.values()) - min(first[node.id] for node in site.state.registrations) <= 1


def test_when_a_node_goes_all_others_lead_what_it_led() -> None:
    site = site_with(None, None, None, None)
    for _ in range(24):
        add_stream(site, place(site.state, 1, 4))
    node = site.state.registrations.get(1)
    assert node is not None
    site.commit(fence(site.state, node))
    assert [site.state.partitions.leader_count(node_id) for node_id in (1, 2, 3, 4)] == [0, 8, 8, 8]


def test_preferred_leaders_are_spread_where_others_lead_for_now() -> None:
    site = site_with(None, None, None)
    add_stream(site, place(site.state, 3, 3))
    node = site.state.registrations.get(1)
    assert node is not None
    site.commit(fence(site.state, node))
    site.beat(1)
    assert site.state.partitions.leader_count(1) == 0
    add_stream(site, place(site.state, 3, 3))
    assert [site.state.partitions.preferred_count(node_id) for node_id in (1, 2, 3)] == [2, 2, 2]


def test_fenced_nodes_come_last_and_those_about_to_stop_or_without_the_role_not_at_all() -> None:
    site = site_with(None, None, None)
    site.register(Registration(4, "4a", "x", roles=(CONTROLLER_ROLE,)))
    nodes = {node.id: node for node in site.state.registrations}
    site.commit(fence(site.state, nodes[1]))
    assert {frozenset(replicas) for replicas in place(site.state, 4, 2)} == {frozenset({2, 3})}
    assert all(replicas[0] != 1 for replicas in place(site.state, 4, 3))
    site.commit(drain(site.state, nodes[2]))
    with pytest.raises(ReplicationFactorInvalid, match="2 can take"):
        place(site.state, 1, 3)
    site.commit(fence(site.state, nodes[3]))
    with pytest.raises(ReplicationFactorInvalid, match="live"):
        place(site.state, 1, 1)
    with pytest.raises(ReplicationFactorInvalid, match="not 0"):
        place(site.state, 1, 0)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ([[]], "no replicas"),
        ([[1], []], "partition 1 has no replicas"),
        ([[1, 1]], "more than once"),
        ([[1, 9]], "node 9, which is not registered"),
        ([[1, 4]], "node 4, which holds no partitions"),
        ([[1, 2], [1]], "all partitions have as many"),
        ([[3]], "none of the nodes of partition 0 is live"),
    ],
)
def test_assignments_that_cannot_be(assignment: list[list[int]], message: str) -> None:
    site = site_with(None, None, None)
    site.register(Registration(4, "4a", "x", roles=(CONTROLLER_ROLE,)))
    site.beat(3, wants_fence=True)
    with pytest.raises(ReplicaAssignmentInvalid, match=message):
        check_assignment(site.state, assignment)


def test_streams_are_created_and_grown_with_their_replicas() -> None:
    site = site_with(None, None, None)
    wish, stream_id = Definition("s", 2), UUID(int=5)

    def create(replication_factor: int = 2) -> int:
        events = create_replicated(
            site.state, wish, stream_id=stream_id, now_ms=0, replication_factor=replication_factor, idempotent=True
        )
        return len(site.commit(events))

    assert (create(), create()) == (3, 0)
    site.commit(grow_replicated(site.state, "s", 3))
    site.commit(grow_replicated(site.state, "s", 4, assignment=[[3, 1]]))
    assert [len(found.replicas) for found in site.state.partitions.of_stream(stream_id).values()] == [2, 2, 2, 2]
    assert partition_at(site, PartitionId(stream_id, 3)).replicas == (3, 1)
    for partitions, assignment in ((5, [[1]]), (6, [[1, 2]]), (5, [[1, 2], [2, 1]])):
        with pytest.raises(ReplicaAssignmentInvalid):
            grow_replicated(site.state, "s", partitions, assignment=assignment)
    with pytest.raises(PartitionsInvalid):
        grow_replicated(site.state, "s", 4)


# -- plans ----------------------------------------------------------------------------------------------


def carried_out(site: Site, moves: list[ReplicaMove], at_once: int) -> int:
    """Carry a plan out, with all replicas in sync as soon as they are there; how many steps it took."""
    for step in range(len(moves) + 1):
        site.commit(begin_moves(site.state, moves, at_once))
        moving = [(where, found) for where, found in site.state.partitions if found.is_moving]
        assert len(moving) == progress(site.state, moves).moving <= at_once
        if not moving:
            assert progress(site.state, moves) == (len(moves), 0, 0, 0)
            return step
        for where, found in moving:
            site.commit(answered(site, where, *found.replicas))
    raise AssertionError("it does not end")


@settings(max_examples=examples(60))
@given(
    RACKS.filter(lambda racks: len(racks) > 2),
    st.lists(st.permutations(range(1, 8)), min_size=1, max_size=12),
    st.integers(1, 3),
    st.integers(1, 3),
    st.booleans(),
)
def test_a_plan_spreads_what_it_can_and_leaves_nothing_to_do(
    racks: list[str | None], orders: list[list[int]], factor: int, at_once: int, empties: bool
) -> None:
    site = site_with(*racks)
    add_stream(site, [[node_id for node_id in order if node_id <= len(racks)][:factor] for order in orders])
    emptied = {1} if empties and len(racks) > factor else set[int]()
    moves = plan(site.state, emptied)
    carried_out(site, moves, at_once)
    assert plan(site.state, emptied) == []
    for _, partition in site.state.partitions:
        assert emptied.isdisjoint(partition.replicas)
        assert not partition.is_moving
        assert emptied or spread(site, partition.replicas)
    if len(set(racks)) == 1:
        loads = [site.state.partitions.replica_count(node.id) for node in site.state.registrations
                 if node.id not in emptied]  # fmt: skip
        assert max(loads) - min(loads) <= 1


@given(st.integers(1, 5), st.integers(1, 40))
def test_a_new_node_gets_its_share_and_nothing_else_is_copied(nodes: int, partitions: int) -> None:
    site = site_with(*[None] * nodes)
    factor = min(nodes, 3)
    add_stream(site, place(site.state, partitions, factor))
    assert sum(move.copies for move in plan(site.state)) == 0
    site.register(Registration(9, "9a", "x"))
    site.beat(9)
    moves = plan(site.state)
    assert sum(move.copies for move in moves) == partitions * factor // (nodes + 1)
    assert all(9 in move.after for move in moves if move.copies)


def test_nodes_that_are_fenced_or_about_to_stop_keep_what_they_have() -> None:
    site = site_with(None, None, None)
    add_stream(site, [[1, 2], [2, 3], [3, 1]])
    nodes = {node.id: node for node in site.state.registrations}
    site.commit(drain(site.state, nodes[1]))
    site.commit(fence(site.state, nodes[2]))
    assert plan(site.state) == []
    moves = plan(site.state, [2])
    assert {move.reasons for move in moves} == {(MoveReason.DRAIN,)}
    assert [move.after for move in moves] == [(1, 3), (3, 2)]


def test_a_node_that_cannot_be_emptied_is_not_to_lead() -> None:
    site = site_with(None, None, None)
    add_stream(site, [[3, 1, 2], [1, 2, 3], [2, 1, 3], [1, 2, 3]])
    moves = plan(site.state, [3])
    assert [(move.before, move.after[0], move.reasons) for move in moves] == [((3, 1, 2), 2, (MoveReason.DRAIN,))]
    carried_out(site, moves, 1)
    assert plan(site.state, [3]) == []


def test_a_plan_that_is_cancelled_or_overtaken() -> None:
    site = site_with(None, None, None)
    places = add_stream(site, [[1], [1], [1], [1], [1], [1]])
    before = [partition_at(site, where).replicas for where in places]
    moves = plan(site.state)
    assert len(moves) == 4
    site.commit(begin_moves(site.state, moves, 2))
    assert progress(site.state, moves) == (0, 2, 2, 0)
    assert begin_moves(site.state, moves, 2) == []
    site.commit(cancel_moves(site.state, moves))
    assert [partition_at(site, where).replicas for where in places] == before
    assert progress(site.state, moves) == (0, 0, 4, 0)
    overtaken = moves[0]._replace(before=(3,))
    assert progress(site.state, [overtaken]) == (0, 0, 0, 1)
    assert begin_moves(site.state, [overtaken], 2) == []
