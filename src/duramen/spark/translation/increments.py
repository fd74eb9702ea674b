"""Increments of a keyed stream for a table with one row per key: each round covers the range between two snapshots."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from duramen.base.errors import SnapshotNotReached, SnapshotTooOld
from duramen.client.cluster import RetryPatience
from duramen.spark.read.snapshot_leases import HeldLeases
from duramen.spark.read.snapshot_node import KnownSnapshot, SnapshotNode, SnapshotPlace
from duramen.spark.translation.log import SourceLog

__all__ = ["IncrementEnds", "Increments"]

_TIMEOUT_S: Final = 30.0


class IncrementEnds(NamedTuple):
    """The snapshot at the end of a round, and, by partition, since when changes are available."""

    at: Mapping[int, int]
    horizons: Mapping[int, int]


class Increments:
    """The snapshots of a stream at the ends of rounds, each held open until it is released."""

    def __init__(self, log: SourceLog) -> None:
        """Raises SettingInvalid."""
        self._stream = log.stream
        self._node = SnapshotNode(log.server, _TIMEOUT_S)
        self._leases: HeldLeases | None = None

    def hold(self, ends: Mapping[int, int], upto: Mapping[int, int] | None) -> IncrementEnds:
        """The newest snapshot after `ends`, or the one at `upto` if it still exists.

        It is held open until `release` if there is anything new. Raises SnapshotNotReached, StreamNotKeyed …
        """
        patience = RetryPatience(_TIMEOUT_S)
        while True:
            places = self._node.newest({self._stream: KnownSnapshot(ends)})[self._stream]
            at = {one: _snapshot_end(one, place, ends.get(one, 0), upto) for one, place in places.items()}
            found = IncrementEnds(at, {one: place.horizon for one, place in places.items()})
            if all(offset <= ends.get(one, 0) for one, offset in at.items()):
                return found
            try:
                lease = self._node.open_lease(self._stream, at, {})
            except SnapshotTooOld as error:
                patience.pause(error)
                continue
            self._leases = HeldLeases(self._node)
            self._leases.add(self._stream, lease)
            return found

    def release(self) -> None:
        """The round has ended."""
        leases, self._leases = self._leases, None
        if leases is not None:
            leases.end_others(frozenset())
            leases.stop()


def _snapshot_end(partition: int, place: SnapshotPlace, end: int, upto: Mapping[int, int] | None) -> int:
    if upto is None:
        return max(place.at, end)
    wanted = max(upto.get(partition, 0), end)
    if wanted > place.at:
        raise SnapshotNotReached(
            f"the view of partition {partition} has come to {place.at}, and the table should have all up to {wanted}"
        )
    return wanted if wanted >= place.oldest or wanted == end else place.at
