"""Fetches that a leader parks because there are no new entries: the newest one of each replica. Pure."""

from duramen.raft.messages import Fetch
from duramen.raft.voters import ReplicaId

__all__ = ["ParkedRaftFetches"]


class ParkedRaftFetches:
    """Parked fetches by sender, each with its deadline."""

    __slots__ = ("fetches",)

    def __init__(self) -> None:
        self.fetches: dict[ReplicaId, tuple[int, Fetch]] = {}

    def park(self, fetch: Fetch, until_ms: int) -> None:
        """Park a fetch in place of the sender's last one."""
        self.fetches[fetch.sender] = (until_ms, fetch)

    def drop(self, replica: ReplicaId) -> None:
        """Drop the parked fetch of a replica that sent another one."""
        self.fetches.pop(replica, None)

    def take(self) -> list[Fetch]:
        """Take all fetches, to respond to them now."""
        fetches = [fetch for _, fetch in self.fetches.values()]
        self.fetches.clear()
        return fetches

    def take_due(self, now_ms: int) -> list[Fetch]:
        """Take the fetches whose deadline has passed."""
        due = [fetch for until_ms, fetch in self.fetches.values() if until_ms <= now_ms]
        for fetch in due:
            del self.fetches[fetch.sender]
        return due

    @property
    def deadline_ms(self) -> int | None:
        """The next deadline."""
        return min((until_ms for until_ms, _ in self.fetches.values()), default=None)
