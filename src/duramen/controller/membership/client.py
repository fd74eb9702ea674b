"""Requests of this node and its users to the active controller, on any node."""

from duramen.base.errors import NotController
from duramen.broker.control.methods import method_of
from duramen.broker.control.requests import Request
from duramen.broker.control.responses import Answer, Outcome, When
from duramen.controller.active.controller import Controller
from duramen.controller.dependencies import ControllerDependencies
from duramen.rpc.retry import KnownLeader, Retrying, RetryPace, Underway, unasked_as

__all__ = ["Asker"]


class Asker:
    """Sends requests of this node and its users to the present leader."""

    def __init__(self, controller: Controller, dependencies: ControllerDependencies) -> None:
        self._controller = controller
        self._dependencies = dependencies
        self._open: dict[Retrying[Answer], None] = {}
        self._leader_id: int | None = None
        controller.watch(self)

    def ask(self, request: Request, done: When, *, within_ms: int) -> None:
        """Send a request until there is a response. `done` gets it once, or the controller's error.

        NotController if nothing was done in the time, OutcomeUnknown if something may have been.
        """
        parts, timing = self._dependencies, self._dependencies.timing

        def leader() -> KnownLeader:
            return KnownLeader(self._controller.leader_id, self._controller.epoch)

        def attempt(known: KnownLeader, left_ms: int, answered: When) -> Underway:
            if known.node_id is None:
                raise _nobody()

            def on_outcome(outcome: Outcome) -> None:
                answered(unasked_as(NotController, outcome))

            own = known.node_id == self._dependencies.node_id
            answer_ms = left_ms if own else min(timing.answer_ms, left_ms)
            self._dependencies.outside.call(known.node_id, request, on_outcome, answer_ms)
            return Underway(known.node_id)

        def finish(outcome: Outcome) -> None:
            self._open.pop(retrying, None)
            done(outcome)

        retrying = Retrying(
            attempt, leader, RetryPace(within_ms, timing.retry_ms, timing.retry_most_ms), parts.clock,
            parts.deadlines, finish, idempotent=method_of(request).idempotent, chance=parts.chance,
        )  # fmt: skip
        self._open[retrying] = None
        retrying.begin()

    def leader_changed(self) -> None:
        """Send waiting requests now, and those that were sent only to the previous leader."""
        leader_id = self._controller.leader_id
        if leader_id is not None and leader_id != self._leader_id:
            for asked in list(self._open):
                asked.leader_changed(leader_id)
        self._leader_id = leader_id

    def applied(self) -> None:
        """Nothing: requests do not wait for it."""

    def closed(self, node_id: int) -> None:
        """The node will not respond to earlier requests."""
        for asked in list(self._open):
            asked.closed(node_id)

    def stop(self) -> None:
        """Stop: open requests get an error."""
        for asked in list(self._open):
            asked.stop(_nobody())


def _nobody() -> NotController:
    return NotController("no active controller was found in the time allowed")
