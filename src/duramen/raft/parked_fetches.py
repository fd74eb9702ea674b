"""Fetches that a leader holds because there is nothing to answer yet: the newest one of each replica. Pure."""

from duramen.raft.messages import Fetch
from duramen.raft.voters import ReplicaId

__all__ = ["ParkedRaftFetches"]


class ParkedRaftFetches:
    """Fetches by who sent them, each until its time."""

    __slots__ = ("fetches",)

    def __init__(self) -> None:
        self.fetches: dict[ReplicaId, tuple[int, Fetch]] = {}

    def park(self, fetch: Fetch, until_ms: int) -> None:
        """Keep a fetch in the place of the sender's last one."""
        self.fetches[fetch.sender] = (until_ms, fetch)

    def drop(self, replica: ReplicaId) -> None:
        """It sent another one: nobody waits for the answer to this."""
        self.fetches.pop(replica, None)

    def take(self) -> list[Fetch]:
        """All of them, to be answered now."""
        fetches = [fetch for _, fetch in self.fetches.values()]
        self.fetches.clear()
        return fetches

    def take_due(self, now_ms: int) -> list[Fetch]:
        """Those whose time has come."""
        due = [fetch for until_ms, fetch in self.fetches.values() if until_ms <= now_ms]
        for fetch in due:
            del self.fetches[fetch.sender]
        return due

    @property
    def deadline_ms(self) -> int | None:
        """When the next one's time comes."""
        return min((until_ms for until_ms, _ in self.fetches.values()), default=None)
