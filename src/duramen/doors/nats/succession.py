"""The start of the gap of a partition that this node begins to lead. Pure.

The previous leader listened until shortly before its replicas last heard of it; messages that it accepted last and did
not replicate were lost with it.
"""

from collections.abc import Callable
from typing import Final

from duramen.metadata.partitions import PartitionId

__all__ = ["Succession"]

_UNSURE_MS: Final = 1000
"""The period before the last contact with a leader in which its accepted messages were on disks of followers."""

_UNKNOWN: Final = 0


class Succession:
    """The previous leaders of partitions of bound streams. Times are ms since 1970."""

    def __init__(
        self, node_id: int, leader_of: Callable[[PartitionId], int | None], heard_ms: Callable[[int], int]
    ) -> None:
        """`leader_of` returns the present leader in the metadata, `heard_ms` when a node was last heard; 0: never."""
        self._node_id = node_id
        self._leader_of = leader_of
        self._heard_ms = heard_ms
        self._leaders: dict[PartitionId, int | None] = {}
        self._taken_ms: dict[PartitionId, int] = {}  # all that was published before is there; new ones have none

    def begin(self, place: PartitionId) -> None:
        """Add a partition that may have been led at any time."""
        self._leaders[place] = self._leader_of(place)
        self._taken_ms[place] = _UNKNOWN

    def told(self, place: PartitionId, now_ms: int) -> None:
        """The metadata of a partition has changed; an unknown one is new."""
        leader = self._leader_of(place)
        before = self._leaders.setdefault(place, leader)
        if before == leader:
            return
        self._leaders[place] = leader
        if before == self._node_id:
            self._taken_ms[place] = now_ms
        elif before is not None:
            self._taken_ms[place] = max(self._heard_ms(before) - _UNSURE_MS, _UNKNOWN)

    def left(self, place: PartitionId, now_ms: int) -> None:
        """The node leads it no more, or in another epoch."""
        self._taken_ms[place] = now_ms

    def forget(self, place: PartitionId) -> None:
        """The partition is gone."""
        self._leaders.pop(place, None)
        self._taken_ms.pop(place, None)

    def missing_since_ms(self, place: PartitionId) -> int | None:
        """The time from which messages may be missing; 0: unknown, None: no publisher can have expected any yet."""
        return self._taken_ms.get(place)
