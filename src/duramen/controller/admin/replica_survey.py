"""The logs of a partition's live replicas, and the most complete of them. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from duramen.metadata.partitions import PartitionId

__all__ = ["ReplicaCompleteness", "Survey"]


class ReplicaCompleteness(msgspec.Struct, frozen=True, array_like=True):
    """What a replica has: the epoch of its last record, its end, and the highest high watermark that it knows.

    `damaged_records` are those below its end that it has lost to damage, as far as it knows.
    """

    leader_epoch: int
    end_offset: int
    high_watermark: int
    damaged_records: int = 0


class Survey(NamedTuple):
    """What the replicas of a partition have, by node; of those in `silent` nothing was heard."""

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
        """The end of the log as far as any replica that answered knows it."""
        return max((max(kept.end_offset, kept.high_watermark) for kept in self.kept.values()), default=0)

    @property
    def lost(self) -> int:
        """How many records below the known end the most complete replica lacks."""
        best = None if self.best is None else self.kept[self.best]
        return 0 if best is None else max(0, self.known_end - best.end_offset) + best.damaged_records
