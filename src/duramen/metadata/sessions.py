"""The sessions of nodes: the last heartbeat of each, and those that timed out (KIP-631).

Not in the log: a new active controller gives every connected node a full session.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from duramen.metadata.nodes import Nodes

__all__ = ["SESSIONS", "Membership", "Sessions"]


class Sessions(NamedTuple):
    """The session timeout of a node: `timeout_ms`, and `grace_ms` after its connection closes, unless it reconnects.

    `absent_ms` if the controller had no connection to it when it became active.
    """

    timeout_ms: int = 9_000
    grace_ms: int = 200
    absent_ms: int = 1_000


SESSIONS: Final = Sessions()


class _Session(NamedTuple):
    """The end of a node's session without another heartbeat; its applied offset of the metadata log."""

    until_ms: int
    applied_offset: int = 0
    drained_offset: int | None = None


class Membership:
    """The sessions of a cluster's nodes since this controller became active."""

    __slots__ = ("_closed", "_rules", "_sessions")

    def __init__(self, nodes: Nodes, now_ms: int, sessions: Sessions = SESSIONS) -> None:
        self._rules = sessions
        self._closed: dict[int, int] = {}  # silent nodes without a connection: their remaining grace
        self._sessions = {node.id: _Session(now_ms + sessions.timeout_ms) for node in nodes if not node.fenced}

    @property
    def deadline_ms(self) -> int | None:
        """The earliest end of a session without further heartbeats."""
        return min((session.until_ms for session in self._sessions.values()), default=None)

    def is_live(self, node_id: int, now_ms: int) -> bool:
        """Whether the node's session is not over."""
        session = self._sessions.get(node_id)
        return session is not None and now_ms < session.until_ms

    def registered(self, node_id: int, now_ms: int) -> None:
        """A registration of the node is committed: its session begins."""
        self._closed.pop(node_id, None)
        self._sessions[node_id] = _Session(now_ms + self._rules.timeout_ms)

    def heard(self, node_id: int, now_ms: int, applied_offset: int) -> None:
        """The node has sent a heartbeat, and has applied the metadata log below `applied_offset`."""
        self._closed.pop(node_id, None)
        known = self._sessions.get(node_id, _Session(now_ms))
        applied_offset = max(applied_offset, known.applied_offset)
        self._sessions[node_id] = known._replace(
            until_ms=now_ms + self._rules.timeout_ms, applied_offset=applied_offset
        )

    def closed(self, node_id: int, now_ms: int) -> None:
        """The node's connection is closed: its session is shortened."""
        self._hurry(node_id, now_ms, self._rules.grace_ms)

    def absent(self, node_id: int, now_ms: int) -> None:
        """There has been no connection to the node yet: after a cold start it may never come."""
        self._hurry(node_id, now_ms, self._rules.absent_ms)

    def _hurry(self, node_id: int, now_ms: int, within_ms: int) -> None:
        session = self._sessions.get(node_id)
        if session is not None:
            self._closed[node_id] = within_ms
            until_ms = min(session.until_ms, now_ms + within_ms)
            self._sessions[node_id] = session._replace(until_ms=until_ms)

    def ended(self, node_id: int) -> None:
        """The node's session is over: it is fenced, or unregistered."""
        self._closed.pop(node_id, None)
        self._sessions.pop(node_id, None)

    def renewed(self, nodes: Nodes, now_ms: int) -> "Membership":
        """Whole sessions for every node, after a pause of this process; shortened for nodes without a connection."""
        renewed = Membership(nodes, now_ms, self._rules)
        for node_id, within_ms in sorted(self._closed.items()):
            renewed._hurry(node_id, now_ms, within_ms)
        return renewed

    def silent(self, now_ms: int) -> list[int]:
        """The nodes whose sessions are over, by id: to be fenced."""
        return sorted(node_id for node_id, session in self._sessions.items() if session.until_ms <= now_ms)

    def drains(self, node_id: int, end_offset: int) -> int:
        """The end of the metadata log when the node was first drained: other nodes must apply the log below it."""
        session = self._sessions[node_id]
        if session.drained_offset is None:
            session = self._sessions[node_id] = session._replace(drained_offset=end_offset)
        return session.drained_offset if session.drained_offset is not None else end_offset

    def applied_offset(self, node_id: int) -> int | None:
        """The applied offset in a node's last heartbeat; None without a session."""
        session = self._sessions.get(node_id)
        return None if session is None else session.applied_offset

    def know(self, node_ids: Iterable[int], offset: int) -> bool:
        """Whether these nodes have applied the metadata log below the offset."""
        return all(
            (session := self._sessions.get(node_id)) is not None and session.applied_offset >= offset
            for node_id in node_ids
        )
