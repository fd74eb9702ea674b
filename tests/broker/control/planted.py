"""Bugs to plant in the controller at work, one at a time: each is a few wrong lines in the place of right ones."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final
from unittest.mock import patch

from duramen.base.errors import DuramenError, OutcomeUnknown
from duramen.base.ids import Position
from duramen.broker.control import active, asking, controller, sessions
from duramen.broker.control.active import ActiveController
from duramen.broker.control.answers import Answer
from duramen.broker.control.controller import Controller
from duramen.broker.control.draft import Draft
from duramen.broker.control.sessions import NodeSessions
from duramen.controller.cluster.membership import Membership
from duramen.controller.quorum.roles import Role

_BUGS: dict[str, Callable[[], Any]] = {}


def _bug(name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def add(plant: Callable[[], Any]) -> Callable[[], Any]:
        _BUGS[name] = plant
        return plant

    return add


@_bug("decides on what is committed")
def _committed() -> Any:
    right = ActiveController._decide

    def decide(self: ActiveController, decision: Any, done: Any) -> None:
        self._ahead = self._view.state.copy()
        right(self, decision, done)

    return patch.object(ActiveController, "_decide", decide)


@_bug("answers what is proposed")
def _proposed() -> Any:
    def propose(self: ActiveController, draft: Draft, value: Any, done: Any) -> None:
        self._runner.propose(draft.events, lambda _: None)
        done(Answer(value, draft.end_offset))

    return patch.object(ActiveController, "_propose", propose)


@_bug("takes what is not known for not done")
def _not_known() -> Any:
    def proposal_done(self: ActiveController, proposal: Any, result: Position | DuramenError) -> None:
        self._remove(proposal)
        outcome = Answer(proposal.value, proposal.end_offset) if isinstance(result, Position) else result
        proposal.done(active._not_active() if isinstance(outcome, OutcomeUnknown) else outcome)
        for done, value in proposal.behind:
            done(active._outcome(value, proposal.end_offset))

    return patch.object(ActiveController, "_proposal_done", proposal_done)


@_bug("is active before it has applied what was before")
def _too_early() -> Any:
    def is_ready(self: Controller) -> bool:
        return self._runner.machine.role is Role.LEADER

    return patch.object(Controller, "_is_ready", is_ready)


@_bug("begins with sessions that are nearly over")
def _no_sessions() -> Any:
    right = NodeSessions.__init__

    def begin(self: NodeSessions, nodes: Any, now_ms: int, *words: Any, **named: Any) -> None:
        right(self, nodes, now_ms, *words, **named)
        self.members = Membership(nodes, now_ms - self._rules.timeout_ms + 30, self._rules)

    return patch.object(sessions.NodeSessions, "__init__", begin)


@_bug("asks everything again")
def _again() -> Any:
    right = asking._Asked._answered

    def answered(self: Any, attempt: int, outcome: Any) -> None:
        if isinstance(outcome, OutcomeUnknown) and attempt == self._attempt:
            self._asked_id = None
            self._again()
        else:
            right(self, attempt, outcome)

    return patch.object(asking._Asked, "_answered", answered)


@_bug("says that all nodes know without asking them")
def _waits_for_nobody() -> Any:
    def know(*_: object) -> bool:
        return True

    return patch.object(NodeSessions, "know", know)


@_bug("stays active when it leads no more")
def _stays() -> Any:
    def leads(self: ActiveController) -> bool:
        return not self._over and self._runner.machine.role is Role.LEADER

    def depose(self: Controller) -> None:
        if self._over and self._active is not None:
            self._active.end()
            self._active = None

    return _both(
        patch.object(ActiveController, "_leads", property(leads)),
        patch.object(controller.Controller, "_depose", depose),
    )


@contextmanager
def _both(first: Any, second: Any) -> Iterator[None]:
    with first, second:
        yield


BUGS: Final[Mapping[str, Callable[[], Any]]] = MappingProxyType(_BUGS)
