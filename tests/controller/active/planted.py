"""Bugs to be planted in the controller at work, one at a time: the simulation has to find each."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.sim.planted import Bug, Place

from duramen.base.errors import DuramenError, OutcomeUnknown
from duramen.base.ids import Position
from duramen.broker.control.responses import Answer, Value, When
from duramen.controller.active.active import ActiveController
from duramen.controller.active.controller import Controller
from duramen.controller.active.pending_changes import PendingChanges
from duramen.controller.active.sessions import NodeSessions
from duramen.raft.roles import RaftRole
from duramen.rpc import retry as retrying

__all__ = ["BUGS"]

Original = Callable[..., Any]


def _on_committed(right: Original) -> Original:
    def _decide(self: ActiveController, decision: Callable[[PendingChanges], Value], done: When) -> None:
        self.ahead = self._view.state.copy()
        right(self, decision, done)

    return _decide


def _say_proposed(_: Original) -> Original:
    def _propose(self: ActiveController, draft: PendingChanges, value: Value, done: When) -> None:
        self._runner.propose(draft.events, lambda _: None)
        done(Answer(value, draft.end_offset))

    return _propose


def _say_what_rests(right: Original) -> Original:
    def _proposal_done(self: ActiveController, proposal: Any, result: Position | DuramenError) -> None:
        behind = list(proposal.behind)
        if isinstance(result, OutcomeUnknown):
            proposal.behind.clear()
        right(self, proposal, result)
        if isinstance(result, OutcomeUnknown):
            for done, outcome in behind:
                done(outcome if isinstance(outcome, DuramenError) else Answer(outcome, proposal.end_offset))

    return _proposal_done


def _too_early(_: Original) -> Original:
    def _is_ready(self: Controller) -> bool:
        return self._runner.machine.role is RaftRole.LEADER

    return _is_ready


def _old_sessions(right: Original) -> Original:
    def silent(self: NodeSessions, nodes: Any, now_ms: int) -> list[int]:
        return right(self, nodes, now_ms) or self.members.silent(now_ms + self._rules.timeout_ms // 2)

    return silent


def _ask_again(right: Original) -> Original:
    def may_repeat(error: DuramenError | OSError, *, idempotent: bool) -> bool:
        return right(error, idempotent=idempotent) or isinstance(error, OutcomeUnknown)

    return may_repeat


def _know_all(right: Original) -> Original:
    def know(self: NodeSessions, node_ids: Sequence[int], offset: int) -> bool:
        return bool(right(self, list(node_ids)[:0], offset))

    return know


def _lead_on(_: Original) -> Original:
    def _leads(self: ActiveController) -> bool:
        return not self._over and self._runner.machine.role is RaftRole.LEADER

    return _leads


def _stay(_: Original) -> Original:
    def _depose(self: Controller) -> None:
        if self._over and self._active is not None:
            self._active.end()
            self._active = None

    return _depose


BUGS: Final = (
    Bug("on-committed", "decide on what is committed", (Place(ActiveController, "_decide", _on_committed),)),
    Bug("say-proposed", "answer what is proposed", (Place(ActiveController, "_propose", _say_proposed),)),
    Bug(
        "say-what-rests",
        "answer what rests on events that may never be committed",
        (Place(ActiveController, "_proposal_done", _say_what_rests),),
    ),
    Bug("too-early", "be active before all that was before is applied", (Place(Controller, "_is_ready", _too_early),)),
    Bug("old-sessions", "fence who was heard half a session ago", (Place(NodeSessions, "silent", _old_sessions),)),
    Bug("ask-again", "ask again what may have been done", (Place(retrying, "may_repeat", _ask_again),)),
    Bug("know-all", "say that all nodes know without asking them", (Place(NodeSessions, "know", _know_all),)),
    Bug(
        "stay-active",
        "stay active when another epoch is led",
        (Place(ActiveController, "_leads", _lead_on), Place(Controller, "_depose", _stay)),
    ),
)
