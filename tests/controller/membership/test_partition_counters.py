"""The counts of partitions are what counting all of them again comes to."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from duramen.base.ids import StreamId
from duramen.controller.membership.partition_counters import PartitionCounters
from duramen.metadata.partitions import PartitionId, PartitionState

_ME = 1
_NODES = st.lists(st.integers(1, 3), min_size=1, max_size=3, unique=True).map(tuple)
_PLACES = st.builds(PartitionId, st.integers(1, 3).map(lambda number: StreamId(int=number)), st.integers(0, 2))


@st.composite
def _states(draw: st.DrawFn) -> PartitionState:
    replicas = draw(_NODES)
    isr = draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True).map(tuple))
    leader = draw(st.sampled_from([None, *isr]))
    adding = draw(st.lists(st.sampled_from(replicas), unique=True).map(tuple))
    return PartitionState(replicas, isr, leader, draw(st.integers(0, 3)), 0, adding=adding)


class Counting(RuleBasedStateMachine):
    """A counters, and the partitions that it was told of."""

    def __init__(self) -> None:
        super().__init__()
        self.counters = PartitionCounters(_ME)
        self.states: dict[PartitionId, PartitionState] = {}
        self.elections = self.unclean = self.shrinks = self.expands = 0

    @rule(place=_PLACES, state=_states(), unclean=st.booleans())
    def told(self, place: PartitionId, state: PartitionState, *, unclean: bool) -> None:
        before = self.states.get(place)
        assert self.counters.update(place, state, unclean=unclean) == before
        self.states[place] = state
        if before is not None:
            elected = state.leader is not None and state.leader_epoch != before.leader_epoch
            self.elections += elected
            self.unclean += elected and unclean
            self.shrinks += state.leader == _ME and not set(before.isr) <= set(state.isr)
            self.expands += state.leader == _ME and not set(state.isr) <= set(before.isr)

    @rule(number=st.integers(1, 3))
    def removed(self, number: int) -> None:
        self.counters.removed(StreamId(int=number))
        self.states = {place: state for place, state in self.states.items() if place.stream_id.int != number}

    @rule()
    def restarted(self) -> None:
        self.counters.restart(self.states.items())

    @invariant()
    def counts_are_right(self) -> None:
        counters, states = self.counters, self.states
        assert set(counters.offline) == {place for place, state in states.items() if state.leader is None}
        assert set(counters.under_replicated) == {
            place
            for place, state in states.items()
            if state.leader == _ME and set(state.replicas) - set(state.adding) - set(state.isr)
        }
        assert (counters.elections, counters.unclean_elections) == (self.elections, self.unclean)
        assert (counters.isr_shrinks, counters.isr_expands) == (self.shrinks, self.expands)


TestCounting = Counting.TestCase
