"""Requests of this node and its users to the active controller, whichever node that is."""

from duramen.base.errors import NotController
from duramen.broker.control.methods import method_of
from duramen.broker.control.requests import Request
from duramen.broker.control.responses import Answer, Outcome, When
from duramen.controller.active.controller import Controller
from duramen.controller.dependencies import ControlKit
from duramen.rpc.retry import KnownLeader, Retrying, RetryPace, Underway, unasked_as

__all__ = ["Asker"]


class Asker:
    """What this node and its users ask for, whichever node leads."""

    def __init__(self, controller: Controller, kit: ControlKit) -> None:
        self._controller = controller
        self._kit = kit
        self._open: dict[Retrying[Answer], None] = {}
        self._leader_id: int | None = None
        controller.watch(self)

    def ask(self, request: Request, done: When, *, within_ms: int) -> None:
        """Ask until there is an answer. `done` gets it once, or the error that the controller decided on.

        NotController where nothing was done in the time, OutcomeUnknown where something may have been.
        """
        timing = self._kit.timing

        def leader() -> KnownLeader:
            return KnownLeader(self._controller.leader_id, self._controller.epoch)

        def attempt(known: KnownLeader, left_ms: int, answered: When) -> Underway:
            if known.node_id is None:
                raise _nobody()

            def told_of(outcome: Outcome) -> None:
                answered(unasked_as(NotController, outcome))

            own = known.node_id == self._kit.node_id
            answer_ms = left_ms if own else min(timing.answer_ms, left_ms)
            self._kit.outside.call(known.node_id, request, told_of, answer_ms)
            return Underway(known.node_id)

        def told(outcome: Outcome) -> None:
            self._open.pop(asked, None)
            done(outcome)

        asked = Retrying(
            attempt, leader, RetryPace(within_ms, timing.retry_ms, timing.retry_most_ms), self._kit.clock,
            self._kit.deadlines, told, idempotent=method_of(request).idempotent, chance=self._kit.chance,
        )  # fmt: skip
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
            asked.stop(_nobody())


def _nobody() -> NotController:
    return NotController("no active controller was found in the time allowed")
