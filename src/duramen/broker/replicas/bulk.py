"""Decides whether a follower lacks so much that its log takes bulk appends. Pure."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from duramen.replication.messages import ReplicaBatch

__all__ = ["BULK", "BulkBytes"]


class BulkBytes(NamedTuple):
    """From `begin` bytes on what is lacking is much, until it is less than `end`: each change takes two checkpoints."""

    begin: int
    end: int

    def is_much(self, batches: Sequence[ReplicaBatch], size: int, high_watermark: int, *, bulk: bool) -> bool:
        """Whether that much is lacking: an answer had these batches, of so many bytes in all, committed up to there.

        It is guessed by the records that are lacking and how large these were; `bulk` says what it was so far, which an
        answer without batches does not change.
        """
        if not batches:
            return bulk
        first, last = batches[0], batches[-1]
        end_offset = last.first_offset + last.records
        lacking = (high_watermark - first.first_offset) * size // (end_offset - first.first_offset)
        return lacking >= (self.end if bulk else self.begin)


BULK: Final = BulkBytes(64 << 20, 8 << 20)
