"""Who fetches from whom."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.replication.partition import ReplicatedPartition, Topology
from duramen.replication.topology import FetchUpstream, places


def partition(
    leader: int | None, replicas: tuple[int, ...], in_sync: set[int], observers: tuple[int, ...] = ()
) -> ReplicatedPartition:
    return ReplicatedPartition(leader, 1, 1, replicas, frozenset(in_sync), observers)


def upstreams(state: ReplicatedPartition, topology: Topology, live: set[int]) -> dict[int, int | None]:
    return {node: place.upstream for node, place in places(state, topology, live).items()}


def test_a_chain_goes_by_the_assignment_with_the_leader_first() -> None:
    state = partition(2, (1, 2, 3), {1, 2, 3}, (9,))
    assert places(state, Topology.CHAIN, {1, 2, 3, 9}) == {
        2: FetchUpstream(None, (1,)),
        1: FetchUpstream(2, (3,)),
        3: FetchUpstream(1, (9,)),
        9: FetchUpstream(3, ()),
    }


def test_a_chain_mends_when_the_middle_goes_and_when_it_is_back() -> None:
    whole = {1: None, 2: 1, 3: 2}
    everybody = {1, 2, 3}
    assert upstreams(partition(1, (1, 2, 3), everybody), Topology.CHAIN, everybody) == whole
    # Gone, and not yet out of sync; out of sync; back, and catching up; in sync again.
    assert upstreams(partition(1, (1, 2, 3), everybody), Topology.CHAIN, {1, 3}) == {1: None, 3: 1, 2: 1}
    assert upstreams(partition(1, (1, 2, 3), {1, 3}), Topology.CHAIN, {1, 3}) == {1: None, 3: 1, 2: 1}
    assert upstreams(partition(1, (1, 2, 3), {1, 3}), Topology.CHAIN, everybody) == {1: None, 3: 1, 2: 1}
    assert upstreams(partition(1, (1, 2, 3), everybody), Topology.CHAIN, everybody) == whole


def test_a_tree_has_two_behind_each() -> None:
    state = partition(1, (1, 2, 3, 4, 5), {1, 2, 3, 4, 5}, (6, 7))
    assert upstreams(state, Topology.TREE, {1, 2, 3, 4, 5, 6, 7}) == {1: None, 2: 1, 3: 1, 4: 2, 5: 2, 6: 3, 7: 3}


def test_in_a_fan_out_all_fetch_from_the_leader() -> None:
    state = partition(3, (1, 2, 3), {3}, (4,))
    assert upstreams(state, Topology.FANOUT, set()) == {3: None, 1: 3, 2: 3, 4: 3}


def test_nobody_has_a_place_where_nobody_leads() -> None:
    assert places(partition(None, (1, 2), {1, 2}), Topology.CHAIN, {1, 2}) == {}


@given(
    st.permutations(range(7)),
    st.integers(1, 7),
    st.sets(st.integers(0, 6)),
    st.sets(st.integers(0, 6)),
    st.sampled_from(Topology),
)
def test_everybody_hangs_on_the_leader_and_nobody_on_one_who_is_behind(
    nodes: list[int], replicas: int, in_sync: set[int], live: set[int], topology: Topology
) -> None:
    leader = nodes[replicas // 2]
    state = partition(
        leader, tuple(nodes[:replicas]), (in_sync & set(nodes[:replicas])) | {leader}, tuple(nodes[replicas:])
    )
    found = places(state, topology, live)
    assert set(found) == set(nodes)
    for node, place in found.items():
        assert place.downstreams == tuple(other for other in found if found[other].upstream == node)
        # Only who is in sync and alive has somebody behind it.
        assert not place.downstreams or node == leader or node in state.in_sync & live
        above, seen = place.upstream, {node}
        while above is not None:
            assert above not in seen
            seen.add(above)
            above = found[above].upstream
        assert leader in seen
