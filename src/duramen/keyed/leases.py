"""Leases: snapshots that somebody holds open. Each has an end; the oldest one holds S0 back. Pure."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from duramen.base.errors import SnapshotLeaseExpired, SnapshotLeaseNotFound

__all__ = ["Lease", "Leases", "held_bytes"]


class Lease(NamedTuple):
    """A snapshot that is held open until `expires_ms`: one position for each partition."""

    lease_id: str
    positions: Mapping[int, int]
    expires_ms: int


class Leases:
    """The leases of a stream; of those that have ended it is known when, until `forget`."""

    def __init__(self) -> None:
        self._open: dict[str, Lease] = {}
        self._ended: dict[str, int] = {}
        self._by_end: list[tuple[int, str]] = []
        self._by_position: dict[int, list[tuple[int, str]]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def put(self, lease: Lease) -> None:
        """A lease is opened, or goes on."""
        self.remove(lease.lease_id)
        self._ended.pop(lease.lease_id, None)
        self._open[lease.lease_id] = lease
        heappush(self._by_end, (lease.expires_ms, lease.lease_id))
        for partition, position in lease.positions.items():
            insort(self._by_position.setdefault(partition, []), (position, lease.lease_id))

    def get(self, lease_id: str, now_ms: int) -> Lease:
        """An open lease. Raises SnapshotLeaseExpired or SnapshotLeaseNotFound."""
        found = self._open.get(lease_id)
        ended_ms = self._ended.get(lease_id)
        if found is not None and found.expires_ms <= now_ms:
            ended_ms = found.expires_ms
        if ended_ms is not None:
            raise SnapshotLeaseExpired(f"the lease {lease_id} ended {(now_ms - ended_ms) / 1000:.0f} s ago")
        if found is None:
            raise SnapshotLeaseNotFound(f"there is no lease {lease_id}")
        return found

    def remove(self, lease_id: str) -> Lease | None:
        """The lease is over; None where it was not there."""
        found = self._open.pop(lease_id, None)
        if found is not None:
            for partition, position in found.positions.items():
                order = self._by_position[partition]
                del order[bisect_left(order, (position, lease_id))]
        return found

    def expire(self, now_ms: int) -> list[Lease]:
        """Remove those whose end has come."""
        over = []
        while self._by_end and self._by_end[0][0] <= now_ms:
            expires_ms, lease_id = heappop(self._by_end)
            found = self._open.get(lease_id)
            if found is not None and found.expires_ms == expires_ms:
                self.remove(lease_id)
                self._ended[lease_id] = expires_ms
                over.append(found)
        return over

    def forget(self, before_ms: int) -> None:
        """Forget the leases that ended before."""
        self._ended = {lease_id: ended for lease_id, ended in self._ended.items() if ended >= before_ms}

    def oldest(self, partition: int) -> int | None:
        """The smallest position that is held in the partition; None where none is."""
        order = self._by_position.get(partition)
        return order[0][0] if order else None

    def all(self) -> Sequence[Lease]:
        """The open ones, in the order in which they were opened."""
        return list(self._open.values())


def held_bytes(
    leases: Iterable[Lease], free: Mapping[int, int], dead_bytes: Callable[[int, int, int], int]
) -> dict[str, int]:
    """How many bytes each lease holds back, by itself.

    `free` is where S0 would be in each partition without leases; `dead_bytes(partition, first, end)` estimates the
    bytes that are superseded by what counts in `[first, end)`.
    """
    return {
        lease.lease_id: sum(
            dead_bytes(partition, position, free[partition])
            for partition, position in lease.positions.items()
            if position < free.get(partition, 0)
        )
        for lease in leases
    }
