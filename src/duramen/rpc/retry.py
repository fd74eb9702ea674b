"""The retry rule: a request goes to the leader, and is repeated until its deadline if that is safe."""

from collections.abc import Callable
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from duramen.base.deadlines import Deadline, Deadlines
from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    NodeStarting,
    NodeStopping,
    NotController,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OffsetNotAvailable,
    OutcomeUnknown,
)
from duramen.base.ports import Clock

__all__ = [
    "ELSEWHERE", "UNASKED", "UNSETTLED", "Attempt", "KnownLeader", "RetryPace", "Retrying", "Underway", "may_be_done",
    "may_repeat", "unasked_as",
]  # fmt: skip

Response = TypeVar("Response")

ELSEWHERE: Final = (NotLeader, NotController, NodeStopping, NodeStarting, OffsetNotAvailable)
"""Errors of a node that had no effect: another node, or the same one later, may succeed."""

UNASKED: Final = (NotLeader, NodeStarting)
"""A call ends with these where the node could not be asked: there is no connection to it, or it is starting."""

UNSETTLED: Final = (
    OutcomeUnknown, NotCoordinator, CoordinatorLoading, NotEnoughReplicas, NotEnoughReplicasAfterAppend,
)  # fmt: skip
"""The request may have had its effect, or an earlier one: a coordinator that is one no more may have acted before."""


def may_be_done(error: DuramenError) -> bool:
    """Whether a request that ends with this error may have had its effect.

    NotLeader means here that no leader has executed the request; as the outcome of an append it leaves that open.
    """
    return not (error.outcome_known or isinstance(error, ELSEWHERE))


def may_repeat(error: DuramenError | OSError, *, idempotent: bool) -> bool:
    """Whether a request is repeated after this error."""
    return isinstance(error, ELSEWHERE) or (idempotent and isinstance(error, UNSETTLED))


def unasked_as(kind: type[DuramenError], outcome: Response | DuramenError) -> Response | DuramenError:
    """The outcome for callers of a controller or coordinator: `kind` if that node could not be reached.

    NotLeader itself would tell clients that another node leads the partition in their request.
    """
    return kind(str(outcome)) if isinstance(outcome, UNASKED) else outcome


class KnownLeader(NamedTuple):
    """The leader's node id, None if there is none, and its epoch."""

    node_id: int | None
    epoch: int


class Underway(NamedTuple):
    """An attempt without a response yet: the asked node, or None and a function that cancels it on this node."""

    node_id: int | None
    cancel: Callable[[], None] | None = None


Attempt = Callable[[KnownLeader, int, Callable[[Response | DuramenError], None]], Underway]
"""Asks a leader within so many ms; the callback gets the outcome. Raises an error as if it was the outcome."""


class RetryPace(NamedTuple):
    """For how long a request is repeated, and the first and the longest wait before the next attempt, in ms."""

    within_ms: int
    first_ms: int
    most_ms: int


class Retrying(Generic[Response]):
    """One request in progress.

    If an attempt may have had its effect, giving up reports that, whatever refused later attempts. If an attempt fails
    because another node leads, it is repeated immediately if a leader of a newer epoch is known by then, otherwise
    after a doubling delay. An attempt in progress at the deadline is awaited: its own deadline ends it.
    """

    def __init__(
        self, attempt: Attempt[Response], leader: Callable[[], KnownLeader], pace: RetryPace, clock: Clock,
        deadlines: Deadlines, done: Callable[[Response | DuramenError], None], *, idempotent: bool,
        chance: Callable[[int], int] | None = None,
    ) -> None:  # fmt: skip
        """`leader` may raise why it is not known; `done` gets the outcome once, the last refusal where it is late.

        `chance` draws a number below the one it is given: with it waits are of half the time to all of it.
        """
        self._try = attempt
        self._leader = leader
        self._clock = clock
        self._deadlines = deadlines
        self._done: Callable[[Response | DuramenError], None] | None = done
        self._idempotent = idempotent
        self._attempt = 0  # rises with each outcome: a late one of an earlier attempt is ignored
        self._asked = KnownLeader(None, -1)
        self._underway: Underway | None = None
        self._refusal: DuramenError = NotLeader("there is no leader at present: retry")
        self._unknown: OutcomeUnknown | None = None
        self._chance = chance
        self._first_ms = self._wait_ms = pace.first_ms
        self._most_ms = pace.most_ms
        self._late = False
        self._until_ms = clock.monotonic_ms() + pace.within_ms
        self._next: Deadline | None = None
        self._last = deadlines.at(self._until_ms, self._expire)

    def begin(self) -> None:
        """Make the next attempt."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._done is None:
            return
        attempt = self._attempt
        answered = partial(self._answered, attempt)
        try:
            self._asked = self._leader()
            underway = self._try(self._asked, max(0, self._until_ms - self._clock.monotonic_ms()), answered)
        except DuramenError as error:
            answered(error)
            return
        if attempt == self._attempt:
            self._underway = underway

    def leader_changed(self, node_id: int) -> None:
        """Another node leads: send it the request now, also if an earlier leader got it and it may be repeated."""
        self._wait_ms = self._first_ms
        if self._done is None:
            return
        if self._underway is None:
            self.begin()
        elif self._idempotent and self._underway.node_id not in (None, node_id):
            self._unknown = self._unknown or _unanswered(self._underway)
            self._underway = None
            self._attempt += 1
            self.begin()

    def closed(self, node_id: int) -> None:
        """The connection to a node ended: it answers nothing any more."""
        if self._underway is not None and self._underway.node_id == node_id:
            self._answered(self._attempt, _unanswered(self._underway))

    def stop(self, error: DuramenError) -> None:
        """Make no more attempts: `done` gets the error, or OutcomeUnknown where the request may have its effect."""
        if self._underway is not None and self._underway.node_id is not None:
            error = _unanswered(self._underway)
        self._finish(self._unknown or error)

    def cancel(self) -> None:
        """The outcome is not needed any more."""
        self._done = None
        self._end()

    def _answered(self, attempt: int, outcome: Response | DuramenError) -> None:
        if attempt != self._attempt or self._done is None:
            return
        self._attempt += 1
        self._underway = None
        if not isinstance(outcome, DuramenError) or not may_repeat(outcome, idempotent=self._idempotent):
            self._finish(outcome)
            return
        if isinstance(outcome, OutcomeUnknown):
            self._unknown = outcome
        self._refusal = outcome
        if self._late:
            self._expire()
        else:
            self._again()

    def _again(self) -> None:
        wait_ms = 0
        if not self._is_newer():
            wait_ms, self._wait_ms = self._wait_ms, min(2 * self._wait_ms, self._most_ms)
            if self._chance is not None:
                wait_ms = wait_ms // 2 + self._chance(wait_ms // 2 + 1)
        self._next = self._deadlines.at(self._clock.monotonic_ms() + wait_ms, self.begin)

    def _is_newer(self) -> bool:
        """Whether a leader is known whose epoch is newer than that of the one that was asked."""
        try:
            leader = self._leader()
        except DuramenError:
            return False
        return leader.node_id is not None and leader.epoch > self._asked.epoch

    def _expire(self) -> None:
        self._late = True
        if self._underway is None:
            self._finish(self._unknown or self._refusal)

    def _finish(self, outcome: Response | DuramenError) -> None:
        done, self._done = self._done, None
        if done is not None:
            self._end()
            done(outcome)

    def _end(self) -> None:
        self._attempt += 1
        self._last.cancel()
        if self._next is not None:
            self._next.cancel()
        if self._underway is not None and self._underway.cancel is not None:
            self._underway.cancel()


def _unanswered(underway: Underway) -> OutcomeUnknown:
    return OutcomeUnknown(f"node {underway.node_id} was asked, and has not answered")
