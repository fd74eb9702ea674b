"""Leases: snapshots that clients hold open. Each one expires; the oldest one holds S0 back. Pure."""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from types import MappingProxyType
from typing import NamedTuple

from duramen.base.errors import SnapshotLeaseExpired, SnapshotLeaseNotFound

__all__ = ["Leases", "SnapshotLease"]


class SnapshotLease(NamedTuple):
    """A snapshot that is held open until `expires_ms`: one position for each partition.

    `epochs`: the leader epoch of the record before each position, -1 without one.
    """

    lease_id: str
    positions: Mapping[int, int]
    expires_ms: int
    opened_ms: int = 0
    epochs: Mapping[int, int] = MappingProxyType({})


class Leases:
    """The leases of a stream; the expiry of ended ones is known until `forget`."""

    def __init__(self) -> None:
        self._open: dict[str, SnapshotLease] = {}
        self._expired: dict[str, int] = {}
        self._by_end: list[tuple[int, str]] = []
        self._by_position: dict[int, list[tuple[int, str]]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def put(self, lease: SnapshotLease) -> None:
        """Open or extend a lease."""
        self.remove(lease.lease_id)
        self._expired.pop(lease.lease_id, None)
        self._open[lease.lease_id] = lease
        heappush(self._by_end, (lease.expires_ms, lease.lease_id))
        for partition, position in lease.positions.items():
            insort(self._by_position.setdefault(partition, []), (position, lease.lease_id))

    def get(self, lease_id: str, now_ms: int) -> SnapshotLease:
        """An open lease. Raises SnapshotLeaseExpired or SnapshotLeaseNotFound."""
        found = self._open.get(lease_id)
        expired_ms = self._expired.get(lease_id)
        if found is not None and found.expires_ms <= now_ms:
            expired_ms = found.expires_ms
        if expired_ms is not None:
            raise SnapshotLeaseExpired(f"the lease {lease_id} ended {(now_ms - expired_ms) / 1000:.0f} s ago")
        if found is None:
            raise SnapshotLeaseNotFound(f"there is no lease {lease_id}")
        return found

    def find(self, lease_id: str) -> SnapshotLease | None:
        """An open lease, even if its time is over; None if there is none."""
        return self._open.get(lease_id)

    @property
    def empty(self) -> bool:
        """Whether there are no leases, expired ones included."""
        return not self._open and not self._expired

    def remove(self, lease_id: str) -> SnapshotLease | None:
        """Remove a lease; returns None if there is none."""
        found = self._open.pop(lease_id, None)
        if found is not None:
            for partition, position in found.positions.items():
                order = self._by_position[partition]
                del order[bisect_left(order, (position, lease_id))]
        return found

    def over(self, now_ms: int) -> list[SnapshotLease]:
        """The leases whose time is over; they are open until `expire`."""
        found = dict[str, SnapshotLease]()
        while self._by_end and (self._stale() or self._by_end[0][0] <= now_ms):
            _, lease_id = heappop(self._by_end)
            lease = self._open.get(lease_id)
            if lease is not None and lease.expires_ms <= now_ms:
                found[lease_id] = lease
        for lease in found.values():
            heappush(self._by_end, (lease.expires_ms, lease.lease_id))
        return list(found.values())

    def next_end_ms(self) -> int | None:
        """The next expiry; None without open leases."""
        while self._by_end and self._stale():
            heappop(self._by_end)
        return self._by_end[0][0] if self._by_end else None

    def _stale(self) -> bool:
        expires_ms, lease_id = self._by_end[0]
        found = self._open.get(lease_id)
        return found is None or found.expires_ms != expires_ms

    def expire(self, lease_id: str, expired_ms: int) -> None:
        """A lease has expired."""
        self.remove(lease_id)
        self._expired[lease_id] = expired_ms

    def expired(self, before_ms: int) -> list[str]:
        """The leases that expired before a time."""
        return [lease_id for lease_id, expired_ms in self._expired.items() if expired_ms < before_ms]

    def first_expired_ms(self) -> int | None:
        """The earliest known expiry."""
        return min(self._expired.values(), default=None)

    def forget(self, lease_id: str) -> None:
        """Forget the expiry of a lease."""
        self._expired.pop(lease_id, None)

    def oldest(self, partition: int) -> int | None:
        """The smallest held position in the partition; None without one."""
        order = self._by_position.get(partition)
        return order[0][0] if order else None

    def all(self) -> Sequence[SnapshotLease]:
        """The open leases, in the order of their opening."""
        return list(self._open.values())
