"""Transactions of several producers on three nodes that end, come back and lead in turns, against a model."""

import random

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.coordinators.transaction.cluster.reading import committed
from tests.coordinators.transaction.cluster.world import World
from tests.coordinators.transaction.cluster.writing import Writer
from tests.examples import examples

from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.coordinators.transaction.log import TRANSACTIONS_STREAM
from duramen.groups.records import OffsetKey

PLACES = [("a", 0), ("a", 1), ("b", 0)]
VERSIONS = (0, 2, 2)
LED = [*PLACES, (TRANSACTIONS_STREAM, 0), (TRANSACTIONS_STREAM, 1), (OFFSETS_STREAM, 0)]
WRITERS = st.integers(0, len(VERSIONS) - 1)
NODES = st.integers(1, 3)


class Coordinating(RuleBasedStateMachine):
    """Clients ask until they are answered, so what they wanted has happened; what ends a node may come in between."""

    @initialize(seed=st.integers(0, 1 << 20))
    def begin(self, seed: int) -> None:
        self.world = World(seed=seed)
        self.world.create("a", 2)
        self.world.create("b", 1)
        self.writers = [Writer(self.world, f"writer-{at}", version) for at, version in enumerate(VERSIONS)]
        self.turns = [0] * len(VERSIONS)
        self.open = [False] * len(VERSIONS)
        self.ended: dict[tuple[int, int], bool] = {}
        self.logs: dict[tuple[str, int], list[tuple[bytes, int, int]]] = {place: [] for place in PLACES}
        self.offsets: list[tuple[int, int, int]] = []  # (writer, turn, offset), in the order of the log
        self.number = 0

    # -- steps --------------------------------------------------------------------------------------

    @rule(at=WRITERS, place=st.sampled_from(PLACES))
    def write(self, at: int, place: tuple[str, int]) -> None:
        self.number += 1
        value = b"%d" % self.number
        self.writers[at].write(*place, value)
        self.logs[place].append((value, at, self.turns[at]))
        self.open[at] = True

    @rule(at=WRITERS)
    def commit_offset(self, at: int) -> None:
        self.number += 1
        self.writers[at].commit_offset("g", "a", self.number)
        self.offsets.append((at, self.turns[at], self.number))
        self.open[at] = True

    @rule(at=WRITERS, commit=st.booleans())
    def end(self, at: int, commit: bool) -> None:
        if self.open[at]:
            self.writers[at].end(commit=commit)
            self.over(at, commit=commit)

    def over(self, at: int, *, commit: bool) -> None:
        self.ended[at, self.turns[at]] = commit
        self.turns[at] += 1
        self.open[at] = False

    @rule(at=WRITERS)
    def another_takes_its_place(self, at: int) -> None:
        self.writers[at] = Writer(self.world, f"writer-{at}", VERSIONS[at])
        self.over(at, commit=False)

    @rule()
    def time_runs_out(self) -> None:
        self.world.calm()
        self.world.advance(75_000)
        for at, writer in enumerate(self.writers):
            if self.open[at]:
                self.over(at, commit=False)
                writer.initialise()

    # -- what breaks --------------------------------------------------------------------------------

    @rule(node_id=NODES, step=st.integers(0, 90), power=st.booleans())
    def end_a_node_soon(self, node_id: int, step: int, power: bool) -> None:
        drawn = random.Random(step) if power else None
        self.world.at(step, lambda: self.kill(node_id, drawn))

    def kill(self, node_id: int, power: random.Random | None) -> None:
        if sum(node.up for node in self.world.nodes) > 1:
            self.world.kill(node_id, power)

    @rule(node_id=NODES)
    def start(self, node_id: int) -> None:
        self.world.start(node_id)

    @rule(node_id=NODES, place=st.sampled_from(LED))
    def let_it_lead(self, node_id: int, place: tuple[str, int]) -> None:
        if self.world.node(node_id).up:
            self.world.lead(*place, node_id)

    # -- what must hold -----------------------------------------------------------------------------

    def expected(self, place: tuple[str, int]) -> list[bytes]:
        found = []
        for value, at, turn in self.logs[place]:
            if (at, turn) not in self.ended:
                break
            if self.ended[at, turn]:
                found.append(value)
        return found

    @invariant()
    def readers_see_a_beginning_of_what_is_committed(self) -> None:
        for place in PLACES:
            leader = self.world.leader(*place)
            if leader is not None and self.world.node(leader).up:
                seen, expected = committed(self.world, *place), self.expected(place)
                assert seen == expected[: len(seen)]

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.calm()
        self.world.advance(10_000)
        for place in PLACES:
            assert committed(self.world, *place) == self.expected(place)
        counting = [offset for at, turn, offset in self.offsets if self.ended.get((at, turn))]
        node, _ = self.world.led(OFFSETS_STREAM, 0)
        found = node.broker.groups.committed(OffsetKey("g", "a", 0))
        assert (-1 if found is None else found.offset) == (counting[-1] if counting else -1)


TestCoordinating = Coordinating.TestCase
TestCoordinating.settings = settings(
    max_examples=examples(10), stateful_step_count=20, deadline=None, phases=(Phase.generate,)
)
