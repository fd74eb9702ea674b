"""A request is brought to whoever leads, and asked again where that does no harm, until it is answered or too late."""

from collections.abc import Callable
from functools import partial

from duramen.base.deadlines import Deadline
from duramen.base.errors import DuramenError, NotController, OutcomeUnknown
from duramen.broker.control.answers import Outcome, When
from duramen.broker.control.controller import Controller
from duramen.broker.control.kit import ControlKit
from duramen.broker.control.requests import Request

__all__ = ["Asker"]


class Asker:
    """What this node and its users ask for, whichever node leads."""

    def __init__(self, controller: Controller, kit: ControlKit) -> None:
        self._controller = controller
        self._kit = kit
        self._open: dict[_Asked, None] = {}
        self._leader_id: int | None = None
        controller.watch(self)

    def ask(self, request: Request, done: When, *, within_ms: int) -> None:
        """Ask until there is an answer. `done` gets it once, or the error that the controller decided on.

        NotController where nothing was done in the time, OutcomeUnknown where something may have been.
        """
        asked = _Asked(request, done, self._controller, self._kit, within_ms, self._forget)
        self._open[asked] = None
        asked.begin()

    def leader_changed(self) -> None:
        """What waits to be asked again is asked now, and what only the one before was asked as well."""
        leader_id = self._controller.leader_id
        if leader_id is not None and leader_id != self._leader_id:
            for asked in list(self._open):
                asked.leader_changed(leader_id)
        self._leader_id = leader_id

    def applied(self) -> None:
        """Nothing: what is asked does not wait for it."""

    def closed(self, node_id: int) -> None:
        """What this node was asked it will not answer."""
        for asked in list(self._open):
            asked.closed(node_id)

    def stop(self) -> None:
        """Nothing is asked any more: what is open is answered so."""
        for asked in list(self._open):
            asked.give_up()

    def _forget(self, asked: "_Asked") -> None:
        self._open.pop(asked, None)


class _Asked:
    """One request on its way; `_attempt` counts how often, so that a late answer to an earlier one says nothing."""

    def __init__(
        self,
        request: Request,
        done: When,
        controller: Controller,
        kit: ControlKit,
        within_ms: int,
        ended: Callable[["_Asked"], None],
    ) -> None:
        self._request = request
        self._done: When | None = done
        self._controller = controller
        self._kit = kit
        self._ended = ended
        self._attempt = 0
        self._asked_id: int | None = None  # who is being asked now
        self._unknown: OutcomeUnknown | None = None  # of an attempt that may have done something
        self._retry_ms = kit.timing.retry_ms
        self._next: Deadline | None = None
        self._last = kit.deadlines.at(kit.clock.monotonic_ms() + within_ms, self.give_up)

    def begin(self) -> None:
        """Ask who leads now; wait where nobody does."""
        if self._done is None:
            return
        self._attempt += 1
        leader_id = self._controller.leader_id
        if leader_id is None:
            self._again()
            return
        self._asked_id = leader_id
        answered = partial(self._answered, self._attempt)
        if leader_id == self._kit.node_id:
            self._controller.ask(self._request, answered)
            return
        self._at(self._kit.timing.answer_ms, partial(self._lost, self._attempt))
        self._kit.outside.call(leader_id, self._request, answered)

    def closed(self, node_id: int) -> None:
        """There is no connection to a node any more."""
        if self._asked_id == node_id:
            self._lost(self._attempt)

    def leader_changed(self, leader_id: int) -> None:
        """Another one leads: do not wait for the one before where asking twice does no harm."""
        self._retry_ms = self._kit.timing.retry_ms
        if self._asked_id is None or (self._request.repeats and self._asked_id != leader_id):
            self._unknown = self._unknown or (None if self._asked_id is None else _unanswered(self._asked_id))
            self._asked_id = None
            self.begin()

    def give_up(self) -> None:
        """It is too late, or nobody is to be asked any more."""
        if self._asked_id is not None:
            self._finish(self._unknown or _unanswered(self._asked_id))
        else:
            self._finish(self._unknown or NotController("no active controller was found in the time allowed"))

    def _answered(self, attempt: int, outcome: Outcome) -> None:
        if attempt != self._attempt or self._done is None:
            return
        self._asked_id = None
        if isinstance(outcome, NotController):
            self._again()
        elif isinstance(outcome, OutcomeUnknown) and self._request.repeats:
            self._unknown = outcome
            self._again()
        else:
            self._finish(outcome)

    def _lost(self, attempt: int) -> None:
        if self._asked_id is not None:
            self._answered(attempt, _unanswered(self._asked_id))

    def _again(self) -> None:
        wait_ms = self._retry_ms // 2 + self._kit.chance(self._retry_ms // 2 + 1)
        self._retry_ms = min(2 * self._retry_ms, self._kit.timing.retry_most_ms)
        self._at(wait_ms, self.begin)

    def _at(self, wait_ms: int, action: Callable[[], None]) -> None:
        if self._next is not None:
            self._next.cancel()
        self._next = self._kit.deadlines.at(self._kit.clock.monotonic_ms() + wait_ms, action)

    def _finish(self, outcome: Outcome | DuramenError) -> None:
        done, self._done = self._done, None
        if done is not None:
            self._last.cancel()
            if self._next is not None:
                self._next.cancel()
            self._ended(self)
            done(outcome)


def _unanswered(node_id: int) -> OutcomeUnknown:
    return OutcomeUnknown(f"node {node_id} was asked, and has not answered")
