"""A replica without a leader: unattached, or resigned. Pure.

A voter waits until it is told of a leader or its time to stand has come. Others ask a voter, or a seed, by fetching.
"""

from duramen.controller.quorum.replica import Replica
from duramen.controller.quorum.roles import Cause

__all__ = ["Waiting"]


class Waiting:
    """Waits an election timeout, and up to another one by chance; `soon` for who may stand at once."""

    def __init__(self, replica: Replica, *, soon: bool = False) -> None:
        self._replica = replica
        election_ms = replica.timeouts.election_ms
        self._until_ms = replica.now_ms if soon else replica.now_ms + election_ms + replica.chance(election_ms)
        self._ask_ms = replica.now_ms

    def open(self) -> None:
        """Ask who leads, where nobody will tell."""
        if not self._replica.votes:
            self._ask()

    @property
    def deadline_ms(self) -> int:
        """When `tick` has something to do."""
        return self._until_ms if self._replica.votes else self._ask_ms

    def tick(self) -> Cause | None:
        """What the time makes of it."""
        if self._replica.votes:
            return Cause.TIMEOUT if self._replica.now_ms >= self._until_ms else None
        if self._replica.now_ms >= self._ask_ms:
            self._ask()
        return None

    def _ask(self) -> None:
        replica = self._replica
        self._ask_ms = replica.now_ms + replica.timeouts.retry_ms
        nodes = {voter.node_id for voter in replica.voters.latest.ids} | set(replica.seeds)
        others = sorted(nodes - {replica.me.node_id})
        if others:
            replica.send(others[replica.chance(len(others))], replica.next_fetch())
