"""Fetches that are parked because there are no new records: the newest one of each replica. Pure."""

from collections.abc import Callable

from duramen.replication.messages import ReplicaFetch

__all__ = ["ParkedReplicaFetches"]


class ParkedReplicaFetches:
    """Parked fetches by sender, each with its deadline."""

    __slots__ = ("_fetches",)

    def __init__(self) -> None:
        self._fetches: dict[int, tuple[int, ReplicaFetch]] = {}

    def park(self, fetch: ReplicaFetch, until_ms: int) -> None:
        """Park a fetch in place of the sender's last one, whose deadline stays: repeated fetches get a response."""
        last = self._fetches.get(fetch.node_id)
        self._fetches[fetch.node_id] = (until_ms if last is None else min(last[0], until_ms), fetch)

    def drop(self, node_id: int) -> None:
        """Drop the parked fetch of a replica that sent another one, which is answered at once."""
        self._fetches.pop(node_id, None)

    def take(self, wanted: Callable[[ReplicaFetch], bool]) -> list[ReplicaFetch]:
        """Take the wanted fetches, to respond to them now."""
        if not self._fetches:
            return []
        found = [fetch for _, fetch in self._fetches.values() if wanted(fetch)]
        for fetch in found:
            del self._fetches[fetch.node_id]
        return found

    def take_due(self, now_ms: int) -> list[ReplicaFetch]:
        """Take the fetches whose deadline has passed."""
        if not self._fetches:
            return []
        due = [fetch for until_ms, fetch in self._fetches.values() if until_ms <= now_ms]
        for fetch in due:
            del self._fetches[fetch.node_id]
        return due

    @property
    def deadline_ms(self) -> int | None:
        """The next deadline."""
        if not self._fetches:
            return None
        return min([until_ms for until_ms, _ in self._fetches.values()])
