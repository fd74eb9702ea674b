"""State of an active controller that is in no log: last heartbeats, and reports of nodes. Pure."""

from collections.abc import Iterable
from typing import Final

from duramen.metadata.leader_reports import WINDOW_MS, Reports
from duramen.metadata.nodes import Nodes
from duramen.metadata.sessions import SESSIONS, Membership, Sessions

__all__ = ["NodeSessions"]

_LATE_SHARE: Final = 4
"""A check that is late by a quarter of a session shows that this process did not run: messages may be unread."""


class NodeSessions:
    """The sessions and reports since this controller became active: each node starts with a whole session.

    Clients may have been told that every live node knows the metadata log below `known_offset`: a node that has not
    applied it stays fenced.
    """

    __slots__ = ("_rules", "known_offset", "members", "reports")

    def __init__(
        self,
        nodes: Nodes,
        now_ms: int,
        end_offset: int,
        rules: Sessions = SESSIONS,
        *,
        report_window_ms: int = WINDOW_MS,
    ) -> None:
        """`end_offset` is the end of the metadata log: earlier controllers have announced nothing after it."""
        self._rules = rules
        self.known_offset = end_offset
        self.members = Membership(nodes, now_ms, rules)
        self.reports = Reports(report_window_ms)

    def know(self, node_ids: Iterable[int], offset: int) -> bool:
        """Whether these nodes have applied the log below the offset.

        They are all live nodes; then the offset may be announced.
        """
        knows = self.members.know(node_ids, offset)
        if knows:
            self.known_offset = max(self.known_offset, offset)
        return knows

    def silent(self, nodes: Nodes, now_ms: int) -> list[int]:
        """The nodes whose sessions are over, which are forgotten; none if this controller itself was paused."""
        self.reports.forget(now_ms)
        due_ms = self.members.deadline_ms
        if due_ms is not None and now_ms - due_ms > self._rules.timeout_ms // _LATE_SHARE:
            self.members = self.members.renewed(nodes, now_ms)
            return []
        silent = self.members.silent(now_ms)
        for node_id in silent:
            self.members.ended(node_id)
        return silent
