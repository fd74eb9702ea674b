"""A request for one partition, brought to whoever leads it, and again where that does no harm, until it is too late."""

from collections.abc import Callable
from functools import partial
from typing import Generic, Protocol, TypeVar

from duramen.base.deadlines import Deadline
from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    NodeStopping,
    NotCoordinator,
    NotLeader,
    OutcomeUnknown,
    RequestInvalid,
)
from duramen.base.ports import Buffer
from duramen.broker.forwarding.requests import Answer, Request, decode_answer, encode
from duramen.broker.forwarding.ways import FIRST_RETRY_MS, LAST_RETRY_MS, Ways, is_elsewhere
from duramen.broker.partition import Partition

__all__ = ["Asking", "Errand"]

T = TypeVar("T")
Found_co = TypeVar("Found_co", covariant=True)


class Errand(Protocol[Found_co]):
    """What is wanted of a partition."""

    @property
    def partition(self) -> Partition:
        """The partition."""

    @property
    def repeats(self) -> bool:
        """Whether it may be asked for again where an answer was lost."""

    def begin(self, done: Callable[[Found_co | DuramenError | OSError], None]) -> Callable[[], None] | None:
        """Do it here, where that is possible: returns what cancels it. None where another node is to be asked."""

    def request(self, spent_ms: int) -> Request:
        """What another node is asked, when so much of the time is gone."""

    def read(self, answer: Answer) -> Found_co | None:
        """What another node has answered; None where that is no answer to this."""


class Asking(Generic[T]):
    """One errand on its way. `_attempt` rises with each answer, so that a late one says nothing."""

    def __init__(
        self, ways: Ways, errand: Errand[T], within_ms: int, done: Callable[[T | DuramenError | OSError], None],
    ) -> None:  # fmt: skip
        """`done` gets the answer once, or why there is none: NotLeader where nobody was found within the time."""
        self._ways = ways
        self._errand = errand
        self._done: Callable[[T | DuramenError | OSError], None] | None = done
        self._attempt = 0
        self._begun_ms = ways.broker.monotonic_ms()
        self._asked_id: int | None = None
        self._cancel_here: Callable[[], None] | None = None  # while it is being done here
        self._late = False
        self._retry_ms = FIRST_RETRY_MS
        self._refusal: DuramenError = NotLeader("nobody leads the partition now: ask again")
        self._next: Deadline | None = None
        self._last = ways.broker.later(within_ms, self._expire)

    def begin(self) -> None:
        """Ask, here or elsewhere."""
        self._next = None
        if self._done is None:
            return
        attempt = self._attempt
        here = self._errand.begin(partial(self._answered, attempt))
        if here is not None:
            self._cancel_here = here if attempt == self._attempt else None
            return
        leader = self._ways.leader_of(self._errand.partition)
        if leader is None or leader == self._ways.broker.node_id:
            self._again()  # nobody leads, or this node does in a moment
            return
        spent_ms = self._ways.broker.monotonic_ms() - self._begun_ms
        self._asked_id = leader
        body = encode(self._errand.request(spent_ms))
        if not self._ways.way.ask_records(leader, body, partial(self._heard, leader, self._attempt)):
            self._asked_id = None
            self._refusal = NotLeader(f"there is no connection to node {leader}, which leads the partition: ask again")
            self._again()

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self._finish(None)

    def stop(self) -> None:
        """Nobody is asked any more."""
        self._give_up(NodeStopping("this node is stopping"))

    def _heard(self, node_id: int, attempt: int, body: Buffer | None) -> None:
        if attempt != self._attempt:
            return
        self._asked_id = None
        try:
            answer = None if body is None else decode_answer(body)
        except RequestInvalid as error:
            self._finish(error)
            return
        if isinstance(answer, DuramenError):
            self._answered(attempt, answer)
            return
        self._attempt += 1
        if answer is not None:
            found = self._errand.read(answer)
            self._finish(RequestInvalid(f"node {node_id} has answered something else") if found is None else found)
        elif self._errand.repeats:
            self._refusal = NotLeader(f"the connection to node {node_id} ended before it answered: ask again")
            self._again()
        else:
            self._finish(_unanswered(node_id))

    def _answered(self, attempt: int, outcome: T | DuramenError | OSError) -> None:
        if attempt != self._attempt:
            return
        self._attempt += 1
        self._cancel_here = None
        if isinstance(outcome, DuramenError) and self._is_elsewhere(outcome):
            self._refusal = outcome
            self._again()
        else:
            self._finish(outcome)

    def _is_elsewhere(self, error: DuramenError) -> bool:
        # A coordinator that is one no more may have done it before.
        moved = isinstance(error, CoordinatorLoading | NotCoordinator)
        return is_elsewhere(error) or (moved and self._errand.repeats)

    def _again(self) -> None:
        if self._late:
            self._finish(self._refusal)
        elif self._done is not None:
            self._next = self._ways.broker.later(self._retry_ms, self.begin)
            self._retry_ms = min(2 * self._retry_ms, LAST_RETRY_MS)

    def _expire(self) -> None:
        self._late = True
        if self._asked_id is not None:
            self._refusal = NotLeader(f"node {self._asked_id}, which leads the partition, does not answer: ask again")
        if self._cancel_here is None:  # else it is this node's own, which answers
            self._give_up(self._refusal)

    def _give_up(self, refusal: DuramenError) -> None:
        if self._asked_id is None or self._errand.repeats:
            self._finish(refusal)
        else:
            self._finish(_unanswered(self._asked_id))

    def _finish(self, outcome: T | DuramenError | OSError | None) -> None:
        done, self._done = self._done, None
        if done is None:
            return
        self._attempt += 1
        self._last.cancel()
        if self._next is not None:
            self._next.cancel()
        if self._cancel_here is not None:
            self._cancel_here()
        if outcome is not None:
            done(outcome)


def _unanswered(node_id: int) -> OutcomeUnknown:
    return OutcomeUnknown(f"node {node_id}, which leads the partition, was asked, and has not answered")
