"""The logs of a partition's live replicas, and the most complete of them. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from duramen.metadata.partitions import PartitionId

__all__ = ["ReplicaCompleteness", "Survey"]


class ReplicaCompleteness(msgspec.Struct, frozen=True, array_like=True):
    """The state of a replica: the epoch of its last record, its end, and the highest high watermark that it knows.

    `damaged_records` counts records below its end that are known to be lost to damage.
    """

    leader_epoch: int
    end_offset: int
    high_watermark: int
    damaged_records: int = 0


class Survey(NamedTuple):
    """The states of a partition's replicas, by node; the nodes in `silent` did not respond."""

    place: PartitionId
    kept: dict[int, ReplicaCompleteness]
    silent: Sequence[int]

    @property
    def best(self) -> int | None:
        """The node with the most complete replica: the highest leader epoch, then the highest end."""
        if not self.kept:
            return None
        return max(self.kept, key=lambda node_id: (*msgspec.structs.astuple(self.kept[node_id])[:2], -node_id))

    @property
    def known_end(self) -> int:
        """The highest end of the log that a responding replica knows."""
        return max((max(kept.end_offset, kept.high_watermark) for kept in self.kept.values()), default=0)

    @property
    def lost(self) -> int:
        """The number of records below the known end that the most complete replica lacks."""
        best = None if self.best is None else self.kept[self.best]
        return 0 if best is None else max(0, self.known_end - best.end_offset) + best.damaged_records
