"""The delivery window: held against a plain model that keeps every position for itself, and its edges by example."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples

from duramen.base.errors import RecordStateInvalid
from duramen.delivery.spans import DeliveryPhase
from duramen.delivery.window import AcknowledgeType, Acquired, Decision, State, Window

OWNERS = st.sampled_from(["a", "b", "c"])
LOCK_MS = 100
OVER = (DeliveryPhase.ACKNOWLEDGED, DeliveryPhase.ARCHIVED)


def window(start: int = 0, *states: State, most_deliveries: int = 3, most_in_flight: int = 100) -> Window:
    return Window(start, states, most_deliveries=most_deliveries, most_in_flight=most_in_flight)


@dataclass
class Position:
    """One position of the model."""

    phase: DeliveryPhase = DeliveryPhase.AVAILABLE
    count: int = 0
    owner: str = ""
    deadline_ms: int = 0
    becomes: DeliveryPhase | None = None


@dataclass
class Model:
    """A dictionary of positions."""

    start: int
    end: int
    most_deliveries: int
    most_in_flight: int
    sparse: bool = False
    positions: dict[int, Position] = field(default_factory=dict)

    @property
    def in_flight(self) -> int:
        over = [at for at, known in self.positions.items() if known.phase in OVER]
        return self.end - self.start - (len(over) if self.sparse else 0)

    def trim(self) -> None:
        while self.start < self.end and self.positions[self.start].phase in OVER:
            del self.positions[self.start]
            self.start += 1

    def held(self, position: int, owner: str) -> bool:
        found = self.positions.get(position)
        return (
            found is not None
            and found.phase is DeliveryPhase.ACQUIRED
            and found.owner == owner
            and found.becomes is None
        )


class WindowMachine(RuleBasedStateMachine):
    """Consumers acquire, decide, fall silent and go; what they decide is kept, or is not; the node restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.window = window()
        self.model = Model(0, 0, 3, 100)
        self.open: list[Decision] = []

    @initialize(
        start=st.integers(0, 50), most_deliveries=st.integers(1, 4), most_in_flight=st.integers(1, 30),
        sparse=st.booleans(),
    )  # fmt: skip
    def begin(self, start: int, most_deliveries: int, most_in_flight: int, *, sparse: bool) -> None:
        self.model = Model(start, start, most_deliveries, most_in_flight, sparse)
        self.window = self._new(start, ())

    def _new(self, start: int, states: Sequence[State]) -> Window:
        model = self.model
        return Window(
            start, states, most_deliveries=model.most_deliveries, most_in_flight=model.most_in_flight,
            sparse=model.sparse,
        )  # fmt: skip

    @rule(owner=OWNERS, size=st.integers(1, 12), most=st.none() | st.integers(0, 8), before=st.integers(0, 5))
    def acquire(self, owner: str, size: int, most: int | None, before: int) -> None:
        model = self.model
        position = self.window.next_position()
        if position is None:
            assert model.in_flight >= model.most_in_flight
            return
        first = max(0, position - before)
        last = max(first + size - 1, position)
        taken = self.window.acquire(first, last, owner, self.now_ms + LOCK_MS, most)
        wanted = [
            at for at in range(max(first, model.start), min(last, model.end - 1) + 1)
            if model.positions[at].phase is DeliveryPhase.AVAILABLE
        ]  # fmt: skip
        room = model.most_in_flight - model.in_flight
        new = list(range(model.end, last + 1)) if room > 0 else []
        if most is not None:
            wanted = wanted[:most]
            new = new[: max(0, min(room, most - len(wanted)))]
        for at in new:
            model.positions[at] = Position()
        model.end += len(new)
        for at in [*wanted, *new]:
            known = model.positions[at]
            model.positions[at] = Position(DeliveryPhase.ACQUIRED, known.count + 1, owner, self.now_ms + LOCK_MS)
        assert [(at, count) for one in taken for at, count in _each(one)] == [
            (at, model.positions[at].count) for at in [*wanted, *new]
        ]

    @rule(size=st.integers(1, 4))
    def skip(self, size: int) -> None:
        first = self.window.next_position()
        if first is None:
            return
        self.window.skip(first, first + size - 1)
        model = self.model
        for at in range(first, first + size):
            if at >= model.end or model.positions[at].phase is DeliveryPhase.AVAILABLE:
                model.positions[at] = Position(DeliveryPhase.ARCHIVED)
        model.end = max(model.end, first + size)
        model.trim()

    @rule(
        owner=OWNERS,
        offset=st.integers(-2, 12),
        pieces=st.lists(st.tuples(st.integers(1, 5), st.sampled_from(AcknowledgeType)), min_size=1, max_size=3),
    )
    def decide(self, owner: str, offset: int, pieces: list[tuple[int, AcknowledgeType]]) -> None:
        model = self.model
        at = max(0, model.start + offset)
        outcomes = []
        for size, outcome in pieces:
            outcomes.append((at, at + size - 1, outcome))
            at += size
        spoken = {
            position: outcome for first, last, outcome in outcomes for position in range(first, last + 1)
            if position >= model.start
        }  # fmt: skip
        if all(model.held(position, owner) for position in spoken):
            self._mark(self.window.decide(owner, outcomes), spoken)
        else:
            with pytest.raises(RecordStateInvalid):
                self.window.decide(owner, outcomes)

    def _mark(self, decision: Decision, spoken: dict[int, AcknowledgeType]) -> None:
        model = self.model
        for position, outcome in spoken.items():
            known = model.positions[position]
            known.becomes = DeliveryPhase.ACKNOWLEDGED if outcome is AcknowledgeType.ACCEPT else DeliveryPhase.ARCHIVED
            if outcome is AcknowledgeType.RELEASE and known.count < model.most_deliveries:
                known.becomes = DeliveryPhase.AVAILABLE
        decided = {at: state.phase for state in decision for at in range(state.first, state.last + 1)}
        if model.sparse:  # completed positions before those that complete are decided with them
            assert all(at in spoken or model.positions[at].phase in OVER for at in decided if at >= model.start)
            assert all(phase in OVER for at, phase in decided.items() if at not in spoken)
            decided = {at: phase for at, phase in decided.items() if at in spoken}
        assert decided == {at: model.positions[at].becomes for at in spoken}
        if decision:
            self.open.append(decision)

    @rule(owner=OWNERS)
    def release_owner(self, owner: str) -> None:
        held = {at: AcknowledgeType.RELEASE for at in self.model.positions if self.model.held(at, owner)}
        self._mark(self.window.release_owner(owner), held)

    @rule(later_ms=st.sampled_from([1, 50, 100]))
    def time_goes_by(self, later_ms: int) -> None:
        self.now_ms += later_ms
        late = {
            at: AcknowledgeType.RELEASE for at, known in self.model.positions.items()
            if self.model.held(at, known.owner) and known.deadline_ms <= self.now_ms
        }  # fmt: skip
        self._mark(self.window.expire(self.now_ms), late)

    @rule(owner=OWNERS, offset=st.integers(0, 8), size=st.integers(1, 4))
    def renew(self, owner: str, offset: int, size: int) -> None:
        first, last = self.model.start + offset, self.model.start + offset + size - 1
        if all(self.model.held(at, owner) for at in range(first, last + 1)):
            self.window.renew(owner, first, last, self.now_ms + LOCK_MS)
            for at in range(first, last + 1):
                self.model.positions[at].deadline_ms = self.now_ms + LOCK_MS
        else:
            with pytest.raises(RecordStateInvalid):
                self.window.renew(owner, first, last, self.now_ms + LOCK_MS)

    @precondition(lambda self: self.open)
    @rule(kept=st.booleans(), pick=st.integers(0, 10))
    def settle_or_revert(self, kept: bool, pick: int) -> None:
        decision = self.open.pop(pick % len(self.open))
        for state in decision:
            for at in range(max(state.first, self.model.start), state.last + 1):
                known = self.model.positions[at]
                if not kept:
                    known.becomes = None
                else:
                    over = state.phase is not DeliveryPhase.AVAILABLE
                    self.model.positions[at] = Position(state.phase, 0 if over else known.count)
        if kept:
            self.window.settle(decision)
            self.model.trim()
        else:
            self.window.revert(decision)

    @rule(offset=st.integers(0, 6))
    def records_are_deleted(self, offset: int) -> None:
        start = self.model.start + offset
        self.window.advance(start)
        model = self.model
        if offset:
            model.positions = {at: known for at, known in model.positions.items() if at >= start}
            model.start, model.end = start, max(model.end, start)
            model.trim()

    @precondition(lambda self: not self.open)
    @rule()
    def the_node_restarts(self) -> None:
        model = self.model
        kept = self.window.states()
        self.window = self._new(model.start, kept)
        for at, known in model.positions.items():
            if known.phase is DeliveryPhase.ACQUIRED:
                model.positions[at] = Position(DeliveryPhase.AVAILABLE, known.count - 1)
        while model.end > model.start and model.positions[model.end - 1] == Position():
            model.end -= 1
            del model.positions[model.end]

    @invariant()
    def the_same_as_the_model(self) -> None:
        model, held = self.model, self.window
        assert (held.start, held.end) == (model.start, model.end)
        free = [at for at, known in model.positions.items() if known.phase is DeliveryPhase.AVAILABLE]
        new = model.end if model.in_flight < model.most_in_flight else None
        assert held.in_flight == model.in_flight
        for at in range(model.start, model.end + 2):
            after = [one for one in free if one >= at]
            assert held.next_free(at) == (min(after) if after else None if new is None else max(at, new))
        assert held.next_position() == (min(free) if free else new)
        locks = [known.deadline_ms for at, known in model.positions.items() if model.held(at, known.owner)]
        assert held.next_deadline_ms() == min(locks, default=None)
        assert all(state.phase is not DeliveryPhase.ACQUIRED and state.last >= held.start for state in held.states())


WindowMachine.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40)
TestWindow = WindowMachine.TestCase


def _each(taken: Acquired) -> list[tuple[int, int]]:
    return [(at, taken.deliveries) for at in range(taken.first, taken.last + 1)]


def test_a_batch_stays_one_piece_however_many_positions_it_has() -> None:
    one = window(most_in_flight=1 << 40)
    for at in range(100):
        first = at * 1_000_000
        assert one.acquire(first, first + 999_999, "a", 10) == [Acquired(first, first + 999_999, 1)]
    assert one.pieces == 1
    one.settle(one.decide("a", [(5_000_000, 98_999_999, AcknowledgeType.ACCEPT)]))
    assert one.pieces == 3
    assert one.start == 0
    one.settle(one.decide("a", [(0, 4_999_999, AcknowledgeType.ACCEPT)]))
    assert one.start == 99_000_000
    assert one.pieces == 1


def test_a_poisoned_position_is_archived_at_the_limit() -> None:
    one = window(most_deliveries=2)
    for count in (1, 2):
        assert one.acquire(0, 0, "a", 10) == [Acquired(0, 0, count)]
        one.settle(one.decide("a", [(0, 0, AcknowledgeType.RELEASE)]))
    assert one.next_position() == 1
    assert one.start == 1


def test_what_is_being_decided_is_nobodys_to_decide_again() -> None:
    one = window()
    one.acquire(0, 3, "a", 10)
    decision = one.decide("a", [(1, 2, AcknowledgeType.ACCEPT)])
    assert one.expire(10) == [State(0, 0, DeliveryPhase.AVAILABLE, 1), State(3, 3, DeliveryPhase.AVAILABLE, 1)]
    with pytest.raises(RecordStateInvalid):
        one.decide("a", [(1, 1, AcknowledgeType.RELEASE)])
    one.revert(decision)
    assert one.next_deadline_ms() == 10
    assert one.expire(10) == [State(1, 2, DeliveryPhase.AVAILABLE, 1)]


def test_what_is_kept_names_only_what_differs_from_new_positions() -> None:
    one = window(5)
    one.acquire(5, 14, "a", 10)
    one.settle(
        one.decide(
            "a", [(7, 8, AcknowledgeType.ACCEPT), (10, 10, AcknowledgeType.RELEASE), (11, 11, AcknowledgeType.REJECT)]
        )
    )
    one.acquire(10, 10, "b", 10)
    one.decide("a", [(12, 12, AcknowledgeType.ACCEPT)])
    assert one.states() == [
        State(7, 8, DeliveryPhase.ACKNOWLEDGED, 0),
        State(10, 10, DeliveryPhase.AVAILABLE, 1),
        State(11, 11, DeliveryPhase.ARCHIVED, 0),
        State(12, 12, DeliveryPhase.ACKNOWLEDGED, 0),
    ]


def test_a_window_that_was_kept_goes_on_where_it_was() -> None:
    one = window(
        5,
        State(5, 6, DeliveryPhase.ACKNOWLEDGED, 0),
        State(9, 9, DeliveryPhase.AVAILABLE, 2),
        State(12, 12, DeliveryPhase.ARCHIVED, 0),
    )
    assert (one.start, one.end) == (7, 13)
    assert one.acquire(7, 20, "a", 10) == [
        Acquired(7, 8, 1),
        Acquired(9, 9, 3),
        Acquired(10, 11, 1),
        Acquired(13, 20, 1),
    ]


def test_no_new_positions_while_too_many_are_in_flight() -> None:
    one = window(most_in_flight=4)
    one.acquire(0, 2, "a", 10)
    assert one.acquire(3, 9, "a", 10, most=5) == [Acquired(3, 3, 1)]
    assert one.next_position() is None
    one.settle(one.decide("a", [(1, 1, AcknowledgeType.RELEASE)]))
    assert one.next_position() == 1
    one.settle(one.decide("a", [(0, 0, AcknowledgeType.ACCEPT)]))
    one.acquire(1, 1, "b", 10)
    assert one.next_position() == 4


def test_in_a_sparse_window_outcomes_join_over_what_was_skipped() -> None:
    held = Window(0, most_deliveries=3, most_in_flight=2, sparse=True)
    held.acquire(0, 0, "a", 10)
    decided: list[State] = []
    for at in range(1000, 5000, 1000):
        held.skip(held.end, at - 1)
        assert held.acquire(at, at, "a", 10) == [Acquired(at, at, 1)]
        outcome = AcknowledgeType.REJECT if at == 2000 else AcknowledgeType.ACCEPT
        decided += held.decide("a", [(at, at, outcome)])
        held.settle(decided[-1:])
        assert (held.pieces, held.in_flight) == (2, 1)
    assert decided == [
        State(1, 1000, DeliveryPhase.ACKNOWLEDGED, 0), State(1, 2000, DeliveryPhase.ARCHIVED, 0),
        State(1, 3000, DeliveryPhase.ACKNOWLEDGED, 0), State(1, 4000, DeliveryPhase.ACKNOWLEDGED, 0),
    ]  # fmt: skip
    held.settle(held.decide("a", [(0, 0, AcknowledgeType.ACCEPT)]))
    assert (held.start, held.end) == (4001, 4001)


def test_in_a_sparse_window_a_release_takes_no_completed_position_with_it() -> None:
    held = Window(0, most_deliveries=3, most_in_flight=10, sparse=True)
    held.acquire(0, 2, "a", 10)
    held.settle(held.decide("a", [(1, 1, AcknowledgeType.ACCEPT)]))
    assert held.decide("a", [(2, 2, AcknowledgeType.RELEASE)]) == [State(2, 2, DeliveryPhase.AVAILABLE, 1)]


def test_other_limits() -> None:
    one = window(most_in_flight=1)
    one.acquire(0, 0, "a", 10)
    one.limit(1, 10)
    assert one.next_position() == 1
    one.settle(one.release_owner("a"))
    assert one.start == 1


def test_a_position_is_added_with_the_times_that_it_was_acquired_elsewhere() -> None:
    window = Window(0, most_deliveries=10, most_in_flight=1 << 30)
    first, second = window.add(3), window.add(0)
    assert (first, second, list(window.free()), window.busy) == (0, 1, [0, 1], False)
    assert window.acquire(first, first, "ann", 100) == [Acquired(first, first, 4)]
    assert (list(window.free()), window.busy) == ([second], True)
    window.settle(window.decide("ann", [(first, first, AcknowledgeType.ACCEPT)]))
    window.skip(second, second)
    assert (window.start, window.pieces, window.busy) == (2, 0, False)
