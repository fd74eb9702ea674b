"""Whatever leaders and connections do: what is said to be stored is, once; what is said not to be is not."""

from collections import Counter
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.service.forwarding.world import WITHIN_MS, World

from duramen.service.forwarded_requests import AppendResult
from duramen.sim.broker import CallbackResult

NODES = st.integers(1, 3)
INDEXES = st.integers(0, 2)
STEPS = st.one_of(
    st.tuples(st.just("append"), NODES, st.lists(INDEXES, min_size=1, max_size=5)),
    st.tuples(st.just("deliver"), st.integers(0, 99), st.booleans()),
    st.tuples(st.just("lose"), st.integers(0, 99)),
    st.tuples(st.just("lead"), INDEXES, st.none() | NODES),
    st.tuples(st.just("close"), NODES, NODES),
    st.tuples(st.just("open")),
    st.tuples(st.just("cut"), NODES),
    st.tuples(st.just("heal")),
    st.tuples(st.just("wait"), st.integers(1, 8)),
)


class Wrote(NamedTuple):
    """A request of a client: a batch of one record for each of these partitions."""

    batches: list[tuple[int, bytes]]
    answer: CallbackResult[list[AppendResult]]


class Run:
    """What clients did, and what was done to the nodes."""

    def __init__(self) -> None:
        self.world = World()
        self.wrote: list[Wrote] = []

    def step(self, kind: str, *what: Any) -> None:
        world = self.world
        match kind:
            case "append":
                self._append(*what)
            case "deliver" if world.under_way:
                world.deliver(what[0] % len(world.under_way), answered=what[1])
            case "lose" if world.under_way:
                world.lose(what[0] % len(world.under_way))
            case "lead":
                index, node_id = what
                if node_id is None or node_id in world.partitions[world.place("s", index)].isr:
                    world.lead(index, node_id)
            case "close":
                world.closed.add((what[0], what[1]))
            case "open":
                world.closed.clear()
            case "cut":
                world.cut = {what[0]}
            case "heal":
                self._heal()
            case "wait":
                world.advance(100 * what[0])
            case _:
                pass

    def _append(self, node_id: int, indexes: list[int]) -> None:
        number = len(self.wrote)
        batches = [(index, b"%d-%d" % (number, at)) for at, index in enumerate(indexes)]
        answer = self.world.append(node_id, *(self.world.batch(node_id, *batch) for batch in batches))
        self.wrote.append(Wrote(batches, answer))

    def _heal(self) -> None:
        for node_id in sorted(self.world.cut):
            self.world.heal(node_id)
        self.world.settle()

    def end(self) -> None:
        """Everybody hears everybody, and each partition is led."""
        self._heal()
        self.world.closed.clear()
        self.world.deliver_all(within_ms=WITHIN_MS + 1000)
        for index in range(3):
            self.world.lead(index, self.world.partitions[self.world.place("s", index)].isr[0])
        self.world.advance(20_000, step_ms=500)

    def check(self) -> None:
        leaders = [self.world.partitions[self.world.place("s", index)].leader for index in range(3)]
        logs = [self.world.values(leader or 0, index) for index, leader in enumerate(leaders)]
        for wrote in self.wrote:
            ends = [-1] * 3
            for (index, value), fate in zip(wrote.batches, wrote.answer.value, strict=True):
                count = Counter(logs[index])[value]
                if fate.error is None:
                    assert (count, logs[index][fate.base_offset]) == (1, value)
                    assert fate.base_offset > ends[index]
                    ends[index] = fate.base_offset
                else:
                    assert count <= (1 if fate.unknown else 0), fate
        assert {room.held_bytes for room in self.world.rooms.values()} == {0}


@settings(max_examples=examples(150))
@given(st.lists(STEPS, min_size=5, max_size=25))
def test_every_record_has_the_fate_that_was_told(steps: list[tuple[Any, ...]]) -> None:
    run = Run()
    for step in steps:
        run.step(*step)
    run.end()
    run.check()
