"""Whether what a follower still lacks is so much that its log takes it in bulk. Pure."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from duramen.replication.messages import Batch

__all__ = ["BULK", "Bulk", "BulkBytes"]


class BulkBytes(NamedTuple):
    """From `begin` bytes on what is lacking is much, until it is less than `end`: each change takes two checkpoints."""

    begin: int
    end: int


BULK: Final = BulkBytes(64 << 20, 8 << 20)


class Bulk:
    """How much is lacking is guessed: by the records that are, and how large those were that came last."""

    def __init__(self, bounds: BulkBytes) -> None:
        self._bounds = bounds
        self.on = False

    def came(self, batches: Sequence[Batch], size: int, high_watermark: int) -> bool:
        """An answer had these batches, of so many bytes in all, from a log committed up to there; whether that is much.

        Where it had none, nothing changes.
        """
        if batches:
            first, last = batches[0], batches[-1]
            end_offset = last.first_offset + last.records
            lacking = (high_watermark - first.first_offset) * size // (end_offset - first.first_offset)
            self.on = lacking >= (self._bounds.end if self.on else self._bounds.begin)
        return self.on
