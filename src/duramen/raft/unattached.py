"""A replica without a leader: unattached, or resigned. Pure.

A voter waits until it learns of a leader or its election timeout ends. Other replicas find the leader by fetching from
a voter or a seed.
"""

from typing import Final

from duramen.raft.replica import RaftCore
from duramen.raft.roles import Cause

__all__ = ["AT_ONCE", "UnattachedRole"]

AT_ONCE: Final = 0


class UnattachedRole:
    """Waits for `wait_ms`; without it, for an election timeout plus a random time up to the same length."""

    def __init__(self, replica: RaftCore, wait_ms: int | None = None) -> None:
        self._replica = replica
        if wait_ms is None:
            wait_ms = replica.timeouts.before_standing_ms(replica.chance)
        self._until_ms = replica.now_ms + wait_ms
        self._ask_ms = replica.now_ms

    def open(self) -> None:
        """Ask for the leader, if the replica does not vote."""
        if not self._replica.votes:
            self._ask()

    @property
    def deadline_ms(self) -> int:
        """The time at which `tick` has something to do."""
        return self._until_ms if self._replica.votes else self._ask_ms

    def tick(self) -> Cause | None:
        """Start an election, or ask again, according to the time."""
        if self._replica.votes:
            return Cause.TIMEOUT if self._replica.now_ms >= self._until_ms else None
        if self._replica.now_ms >= self._ask_ms:
            self._ask()
        return None

    def disconnected(self, node_id: int) -> None:
        """Shorten the wait if the connection to the candidate with this vote closed: it may have ended."""
        replica = self._replica
        voted = replica.ballot.voted
        if voted is not None and voted.node_id == node_id and replica.may_win:
            self._until_ms = min(self._until_ms, replica.now_ms + replica.timeouts.shortly_ms(replica.chance))

    def _ask(self) -> None:
        replica = self._replica
        self._ask_ms = replica.now_ms + replica.timeouts.retry_ms
        nodes = {voter.node_id for voter in replica.voters.latest.ids} | set(replica.seeds)
        others = sorted(nodes - {replica.me.node_id})
        if others:
            replica.send(others[replica.chance(len(others))], replica.next_fetch())
