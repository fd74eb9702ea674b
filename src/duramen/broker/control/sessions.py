"""What an active controller knows that is in no log: who was heard when, and who reports whom. Pure."""

from typing import Final

from duramen.controller.cluster.membership import SESSIONS, Membership, Sessions
from duramen.controller.cluster.reporting import WINDOW_MS, Reports
from duramen.controller.nodes import Nodes

__all__ = ["NodeSessions"]

_LATE_SHARE: Final = 4
"""Who looks a quarter of a session late was not running: what nodes sent meanwhile may wait unread."""


class NodeSessions:
    """The sessions and reports since this controller is active: each node begins with a whole session."""

    __slots__ = ("_rules", "members", "reports")

    def __init__(
        self, nodes: Nodes, now_ms: int, rules: Sessions = SESSIONS, *, report_window_ms: int = WINDOW_MS
    ) -> None:
        self._rules = rules
        self.members = Membership(nodes, now_ms, rules)
        self.reports = Reports(report_window_ms)

    def silent(self, nodes: Nodes, now_ms: int) -> list[int]:
        """The nodes whose sessions are over, which are forgotten with it; nobody where this controller itself slept."""
        self.reports.forget(now_ms)
        due_ms = self.members.deadline_ms
        if due_ms is not None and now_ms - due_ms > self._rules.timeout_ms // _LATE_SHARE:
            self.members = Membership(nodes, now_ms, self._rules)
            return []
        silent = self.members.silent(now_ms)
        for node_id in silent:
            self.members.ended(node_id)
        return silent
