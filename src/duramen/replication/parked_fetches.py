"""Fetches that wait because there is nothing to answer yet: the newest one of each replica. Pure."""

from collections.abc import Callable

from duramen.replication.messages import ReplicaFetch

__all__ = ["ParkedReplicaFetches"]


class ParkedReplicaFetches:
    """Fetches by who sent them, each until its time."""

    __slots__ = ("_fetches",)

    def __init__(self) -> None:
        self._fetches: dict[int, tuple[int, ReplicaFetch]] = {}

    def park(self, fetch: ReplicaFetch, until_ms: int) -> None:
        """Keep a fetch in the place of the sender's last one, and no longer: who asks again and again is answered."""
        last = self._fetches.get(fetch.node_id)
        self._fetches[fetch.node_id] = (until_ms if last is None else min(last[0], until_ms), fetch)

    def drop(self, node_id: int) -> None:
        """It sent another one, which is answered at once."""
        self._fetches.pop(node_id, None)

    def take(self, wanted: Callable[[ReplicaFetch], bool]) -> list[ReplicaFetch]:
        """Those that are wanted, to be answered now."""
        if not self._fetches:
            return []
        found = [fetch for _, fetch in self._fetches.values() if wanted(fetch)]
        for fetch in found:
            del self._fetches[fetch.node_id]
        return found

    def take_due(self, now_ms: int) -> list[ReplicaFetch]:
        """Those whose time has come."""
        if not self._fetches:
            return []
        due = [fetch for until_ms, fetch in self._fetches.values() if until_ms <= now_ms]
        for fetch in due:
            del self._fetches[fetch.node_id]
        return due

    @property
    def deadline_ms(self) -> int | None:
        """When the next one's time comes."""
        if not self._fetches:
            return None
        return min([until_ms for until_ms, _ in self._fetches.values()])
