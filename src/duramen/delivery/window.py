"""The delivery window: available, acquired (by whom and until when) and completed positions. Pure.

    Available -- acquire --> Acquired -- accept --> Acknowledged
        ^                       | | `--- reject --> Archived
        `--- release, timeout --' `--- release or timeout at the limit of deliveries --> Archived

The window extends from `start`, before which nothing is delivered again, to `end`, the first position that was never
acquired. Positions are integers in delivery order without other meaning here. The outcome of an acquired position is
decided in two steps, so that it can be made durable in between: `decide`, `release_owner` and `expire` mark the
positions with their outcome; `settle` applies it, `revert` discards it.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from duramen.base.errors import RecordStateInvalid
from duramen.delivery.spans import DeliveryPhase, PositionSpan, Spans

__all__ = ["AcknowledgeType", "Acquired", "Decision", "State", "Window", "overlaid"]


class AcknowledgeType(Enum):
    """A consumer's outcome for positions that it has acquired."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"


class Acquired(NamedTuple):
    """Positions that were acquired together, and how often that has happened to them."""

    first: int
    last: int
    deliveries: int


class State(NamedTuple):
    """The state of positions as it is kept beyond a restart: never Acquired."""

    first: int
    last: int
    phase: DeliveryPhase
    deliveries: int


Decision = Sequence[State]
"""The state of marked positions after `settle`."""


class Window:
    """Positions on their way to consumers."""

    __slots__ = ("_most_deliveries", "_most_in_flight", "_spans", "_sparse", "end", "start")

    def __init__(
        self, start: int, states: Iterable[State] = (), *, most_deliveries: int, most_in_flight: int,
        sparse: bool = False,
    ) -> None:  # fmt: skip
        """Load a stored window: `states` in order; positions between them that none covers are available.

        A position is archived when it comes back after `most_deliveries`. Once `most_in_flight` positions are
        between `start` and `end`, no new ones are acquired. If most positions have nothing (`sparse`), completed ones
        do not count, and the outcome of a position also names the completed ones before it: adjacent outcomes join.
        """
        self.start = start
        self._sparse = sparse
        self.end = start
        self._most_deliveries = most_deliveries
        self._most_in_flight = most_in_flight
        self._spans = Spans()
        for state in states:
            first = max(state.first, self.end)
            if first <= state.last:
                self._extend_to(first, DeliveryPhase.AVAILABLE)
                self._spans.append(PositionSpan(first, state.last, state.phase, state.deliveries))
                self.end = state.last + 1
        self._trim()

    def limit(self, most_deliveries: int, most_in_flight: int) -> None:
        """Other limits hold from here on."""
        self._most_deliveries, self._most_in_flight = most_deliveries, most_in_flight

    # -- asking -------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """The number of positions between `start` and `end`; in a sparse window without the completed ones."""
        return self.end - self.start - (self._spans.over if self._sparse else 0)

    @property
    def pieces(self) -> int:
        """The number of spans of the window."""
        return len(self._spans)

    @property
    def busy(self) -> bool:
        """Whether something is acquired."""
        return any(span.phase is DeliveryPhase.ACQUIRED for span in self._spans)

    def free(self) -> Iterator[int]:
        """The positions that may be acquired again, in their order, as they are at this call."""
        spans = [span for span in self._spans if span.free]
        return (position for span in spans for position in range(span.first, span.last + 1))

    def next_position(self) -> int | None:
        """The first position that may be acquired, `end` where it is a new one; None where none may be now."""
        return self.next_free(self.start)

    def next_free(self, position: int) -> int | None:
        """The first position from `position` on that may be acquired; a new one where it is `end` or more."""
        found = self._spans.first_free(position)
        if found is None and self.in_flight < self._most_in_flight:
            return max(position, self.end)
        return found

    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do."""
        return min((span.deadline_ms for span in self._spans if span.held), default=None)

    def states(self) -> Decision:
        """The window to store, with marked positions as if settled, without positions that were never acquired.

        Acquired positions have their earlier state: a restart makes them available.
        """
        kept = []
        for span in self._spans:
            state = _settled(span) if span.becomes is not None else State(*span[:4])
            if span.held:
                state = State(span.first, span.last, DeliveryPhase.AVAILABLE, span.deliveries - 1)
            if state.phase is not DeliveryPhase.AVAILABLE or state.deliveries:
                kept.append(state)
        return _joined(kept)

    # -- acquiring ----------------------------------------------------------------------------------

    def acquire(self, first: int, last: int, owner: str, deadline_ms: int, most: int | None = None) -> list[Acquired]:
        """Have `owner` acquire the available positions from `first` to `last`, at most `most` of them.

        New positions follow the window without a hole, see `skip`. Without `most` all of them are acquired, even if
        that exceeds the limit of positions in flight.
        """
        first = max(first, self.start)
        left = last - first + 1 if most is None else most
        taken: list[Acquired] = []
        for span in self._spans.within(first, last):
            if span.free and left > 0:
                self._take(span._replace(last=min(span.last, span.first + left - 1)), owner, deadline_ms, taken)
                left -= taken[-1].last - span.first + 1
        room = self._most_in_flight - self.in_flight
        if last >= self.end and left > 0 and room > 0:
            if most is not None:
                last = min(last, self.end + min(left, room) - 1)
            new = PositionSpan(self.end, last, DeliveryPhase.ACQUIRED, 1, owner, deadline_ms)
            self._spans.append(new)
            self.end = last + 1
            _report(new, taken)
        return taken

    def _take(self, span: PositionSpan, owner: str, deadline_ms: int, taken: list[Acquired]) -> None:
        held = PositionSpan(span.first, span.last, DeliveryPhase.ACQUIRED, span.deliveries + 1, owner, deadline_ms)
        self._spans.put(held)
        _report(held, taken)

    def add(self, deliveries: int) -> int:
        """One more position behind the window, which was acquired so many times before; returns it."""
        position = self.end
        self._spans.append(PositionSpan(position, position, DeliveryPhase.AVAILABLE, deliveries))
        self.end += 1
        return position

    def skip(self, first: int, last: int) -> None:
        """There is nothing at the positions from `first` to `last`: those that are available or new are archived."""
        for span in self._spans.within(first, last):
            if span.free:
                self._spans.put(PositionSpan(span.first, span.last, DeliveryPhase.ARCHIVED))
        self._extend_to(last + 1, DeliveryPhase.ARCHIVED)
        self._trim()

    def _extend_to(self, end: int, phase: DeliveryPhase) -> None:
        if self.end < end:
            self._spans.append(PositionSpan(self.end, end - 1, phase))
            self.end = end

    # -- deciding -----------------------------------------------------------------------------------

    def decide(self, owner: str, outcomes: Sequence[tuple[int, int, AcknowledgeType]]) -> Decision:
        """Mark positions of `owner`: (first, last, outcome), in order and without overlaps.

        Positions before `start` are complete and are skipped. Raises RecordStateInvalid, and marks nothing, if one of
        the others is not acquired by `owner`.
        """
        marked: list[tuple[PositionSpan, AcknowledgeType]] = []
        for first, last, outcome in outcomes:
            marked += ((span, outcome) for span in self._held(owner, first, last))
        return self._mark(marked)

    def _held(self, owner: str, first: int, last: int) -> list[PositionSpan]:
        spans = self._spans.within(max(first, self.start), last)
        if last >= self.end or not all(span.held_by(owner) for span in spans):
            raise RecordStateInvalid(f"not all of {first} to {last} are acquired by {owner}")
        return spans

    def renew(self, owner: str, first: int, last: int, deadline_ms: int) -> None:
        """Have `owner` keep positions until a later time. Raises RecordStateInvalid, and renews none, as `decide`."""
        for span in self._held(owner, first, last):
            self._spans.put(span._replace(deadline_ms=deadline_ms))

    def release_owner(self, owner: str) -> Decision:
        """Mark everything that `owner` holds as released."""
        return self._mark([(span, AcknowledgeType.RELEASE) for span in self._spans if span.held_by(owner)])

    def expire(self, now_ms: int) -> Decision:
        """Mark everything whose time is up as released."""
        return self._mark(
            [(span, AcknowledgeType.RELEASE) for span in self._spans if span.held and span.deadline_ms <= now_ms]
        )

    def _mark(self, marked: list[tuple[PositionSpan, AcknowledgeType]]) -> Decision:
        decision = []
        for span, outcome in marked:
            phase = DeliveryPhase.ACKNOWLEDGED if outcome is AcknowledgeType.ACCEPT else DeliveryPhase.ARCHIVED
            if outcome is AcknowledgeType.RELEASE and span.deliveries < self._most_deliveries:
                phase = DeliveryPhase.AVAILABLE
            marked_span = span._replace(becomes=phase)
            self._spans.put(marked_span)
            state = _settled(marked_span)
            if self._sparse and phase is not DeliveryPhase.AVAILABLE:
                state = state._replace(first=self._spans.over_before(state.first))
            decision.append(state)
        return _joined(decision)

    def settle(self, decision: Decision) -> None:
        """Apply the decided outcomes; `start` moves past the completed positions."""
        for first, last, phase, count in decision:
            if last >= self.start:
                self._spans.put(PositionSpan(max(first, self.start), last, phase, count))
        self._trim()

    def revert(self, decision: Decision) -> None:
        """The decided outcomes could not be stored: the positions are acquired as before, until their deadline."""
        for first, last, _, _ in decision:
            for span in self._spans.within(max(first, self.start), last):
                self._spans.put(span._replace(becomes=None))

    # -- the start ----------------------------------------------------------------------------------

    def advance(self, start: int) -> None:
        """Everything before `start` is deleted: owners lose their positions there."""
        if start > self.start:
            self._spans.drop_before(start)
            self.start = start
            self.end = max(self.end, start)
            self._trim()

    def _trim(self) -> None:
        start = self.start
        for span in self._spans:
            if not span.over:
                break
            start = span.last + 1
        if start > self.start:
            self._spans.drop_before(start)
            self.start = start


def _report(held: PositionSpan, taken: list[Acquired]) -> None:
    """Add an acquired span; adjacent ones with as many deliveries are one."""
    if taken and taken[-1].last == held.first - 1 and taken[-1].deliveries == held.deliveries:
        taken[-1] = taken[-1]._replace(last=held.last)
    else:
        taken.append(Acquired(held.first, held.last, held.deliveries))


def _settled(span: PositionSpan) -> State:
    """The state of marked positions once they are settled: deliveries count if they may be delivered again."""
    phase = span.phase if span.becomes is None else span.becomes
    return State(span.first, span.last, phase, span.deliveries if phase is DeliveryPhase.AVAILABLE else 0)


def _joined(states: Iterable[State]) -> Decision:
    joined: list[State] = []
    for state in states:
        if joined and joined[-1].last == state.first - 1 and joined[-1][2:] == state[2:]:
            joined[-1] = joined[-1]._replace(last=state.last)
        else:
            joined.append(state)
    return joined


def overlaid(states: Iterable[State]) -> list[State]:
    """The result of applying all `states`, with positions in any order: for each position the last one counts."""
    given = list(states)
    if not given:
        return []
    spans = Spans()
    spans.append(PositionSpan(min(state.first for state in given), max(state.last for state in given)))
    for state in given:
        spans.put(PositionSpan(*state))
    kept = (State(*span[:4]) for span in spans)
    return [state for state in kept if state.phase is not DeliveryPhase.AVAILABLE or state.deliveries]
