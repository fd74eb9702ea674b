"""Decides whether a follower lacks so much that its log takes bulk appends. Pure."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from duramen.replication.messages import ReplicaBatch

__all__ = ["BULK", "BulkBytes"]


class BulkBytes(NamedTuple):
    """Catch-up begins with a lag of `begin` bytes and ends below `end`: each change takes two checkpoints."""

    begin: int
    end: int

    def is_much(self, batches: Sequence[ReplicaBatch], size: int, high_watermark: int, *, bulk: bool) -> bool:
        """Whether the lag is that large: a response had these batches, of this total size, with this high watermark.

        It is estimated from the number of missing records and the size of the received ones; `bulk` is the previous
        result, which a response without batches does not change.
        """
        if not batches:
            return bulk
        first, last = batches[0], batches[-1]
        end_offset = last.first_offset + last.records
        lacking = (high_watermark - first.first_offset) * size // (end_offset - first.first_offset)
        return lacking >= (self.end if bulk else self.begin)


BULK: Final = BulkBytes(64 << 20, 8 << 20)
