"""What becomes of many partitions is what becomes of each."""

from uuid import UUID

import hypothesis.strategies as st
from hypothesis import given
from msgspec.structs import replace

from duramen.base.ids import StreamId
from duramen.metadata.events import NodeDraining, NodeRegistered
from duramen.metadata.leader_election import ElectionCache, change
from duramen.metadata.nodes import Nodes
from duramen.metadata.partitions import PartitionId, PartitionState
from duramen.metadata.stream_rules import ReplicationRules

NODES = (1, 2, 3)
RULES = (ReplicationRules(), ReplicationRules(2), ReplicationRules(2, unclean=True))
STREAM = StreamId(int=1)


def some(members: tuple[int, ...]) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.sampled_from(members), unique=True).map(tuple) if members else st.just(())


@st.composite
def partitions(draw: st.DrawFn) -> PartitionState:
    """Also some that no controller would make."""
    replicas = draw(st.permutations(NODES).map(tuple))
    isr = draw(some(replicas))
    rest = tuple(node for node in replicas if node not in isr)
    leader = draw(st.sampled_from((None, *isr)))
    return PartitionState(
        replicas,
        isr,
        leader,
        draw(st.integers(0, 9)),
        draw(st.integers(0, 9)),
        draw(some(rest)),
        draw(some(rest)),
        draw(st.sampled_from(((), replicas[:1]))),
        draw(st.sampled_from(((), replicas[-1:]))),
    )


@st.composite
def nodes(draw: st.DrawFn) -> Nodes:
    """Some of them fenced, some about to stop."""
    made = Nodes()
    for node_id in NODES:
        made.apply(NodeRegistered(node_id, str(UUID(int=node_id)), "x", node_id, fenced=draw(st.booleans())))
        if draw(st.booleans()):
            made.apply(NodeDraining(node_id, node_id))
    return made


@given(
    nodes(),
    st.lists(st.tuples(partitions(), st.sampled_from(RULES), st.sampled_from((None, 1)), st.sampled_from((None, 1)))),
)
def test_of_those_that_stand_alike_each_comes_to_what_it_would_alone(
    known: Nodes, many: list[tuple[PartitionState, ReplicationRules, int | None, int | None]]
) -> None:
    alike = ElectionCache(known)
    # Each twice, in other epochs: what the first has come to is that of the other.
    later = [(replace(one[0], leader_epoch=17, partition_epoch=27), *one[1:]) for one in many]
    for index, (before, rules, lost, blank) in enumerate([*many, *later]):
        place = PartitionId(STREAM, index)
        alone = change(place, before, before, known, rules, lost=lost, blank=blank)
        assert alike.change(place, before, rules, lost=lost, blank=blank) == alone
