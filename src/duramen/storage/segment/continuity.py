"""Checks that offsets and epochs of consecutive batches fit, and which offsets are lost with damaged batches.

Pure. If an offset does not follow, the batches around it show whether it is wrong or records are missing.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from duramen.codec.batch import Header
from duramen.storage.segment.damage import Damage, DamageCause
from duramen.storage.segment.segment import LARGEST_OFFSET_DELTA
from duramen.storage.segment.spans import ByteSpan

__all__ = ["ExpectedSegment", "Judge"]


class ExpectedSegment(NamedTuple):
    """The known facts about a segment besides its file.

    Size in bytes; offsets from `base_offset` up to `end_offset`, -1 if unknown. Records below `gaps_below` may be
    missing because of compaction, and those in the ranges `lost` because they were lost before. `epoch_at` returns the
    leader epoch of an offset, -1 if unknown; without it, epochs only must not decrease. Unless `whole` the segment
    continues: a partial last block is not compared.
    """

    size: int
    base_offset: int
    end_offset: int = -1
    gaps_below: int = 0
    lost: Sequence[tuple[int, int]] = ()
    epoch_at: Callable[[int], int] | None = None
    whole: bool = True


class Judge:
    """Receives a segment's spans in order, in pieces of any size; `found` is the damage."""

    def __init__(self, expected: ExpectedSegment, next_offset: int, *, covered: bool) -> None:
        """`next_offset` is the offset of the first span, or of the records missing before it.

        `covered`: an index has CRCs of the epochs too, so that they need not be compared.
        """
        self.found: list[Damage] = []
        self.next_offset = next_offset
        self._expected = expected
        self._covered = covered
        self._epoch = -1
        largest = expected.base_offset + LARGEST_OFFSET_DELTA
        self._limit = largest if expected.end_offset < 0 else min(largest, expected.end_offset)

    def show(self, spans: Sequence[ByteSpan], following: int) -> list[int]:
        """The next spans; the offset after them is `following`, -1 if unknown.

        Returns the offset after each span.
        """
        offsets = []
        for at, span in enumerate(spans):
            head, beyond = (self._sound_head(spans, at + 1), self._sound_head(spans, at + 2))
            ahead = following if at + 1 == len(spans) else head.base_offset if head is not None else -1
            cause = span.cause
            if span.head is not None and cause is None:
                cause = self._offset_cause(span.head, ahead) or self._epoch_cause(span.head, head, beyond)
            if cause is None and span.head is not None:
                self._sound(span, span.head)
            else:
                self._damaged(span, cause or DamageCause.HEADER, ahead)
            offsets.append(self.next_offset)
        return offsets

    def end(self, size: int) -> None:
        """The segment ends at `size` bytes."""
        end_offset = self._expected.end_offset
        open_end = bool(self.found) and self.found[-1].last_offset < 0
        if end_offset > self.next_offset and not open_end and not self._may_be_missing(end_offset - 1):
            self.found.append(Damage(size, size, self.next_offset, end_offset - 1, DamageCause.MISSING))
            self.next_offset = end_offset

    def _sound(self, span: ByteSpan, head: Header) -> None:
        before = self.found[-1] if self.found else None
        if before is not None and before.last_offset < 0 and before.end == span.start:
            self.found[-1] = before._replace(last_offset=head.base_offset - 1)
        elif head.base_offset > self.next_offset and not self._may_be_missing(head.base_offset - 1):
            self.found.append(
                Damage(span.start, span.start, self.next_offset, head.base_offset - 1, DamageCause.MISSING)
            )
        self.next_offset, self._epoch = head.next_offset, head.leader_epoch

    def _damaged(self, span: ByteSpan, cause: DamageCause, ahead: int) -> None:
        # A batch of another leader may be of another history: its length says nothing.
        head = span.head if cause is not DamageCause.EPOCH else None
        after = -1
        if ahead > self.next_offset:
            after = ahead
        elif head is not None and head.base_offset == self.next_offset and head.size == span.end - span.start:
            after = head.next_offset
        self.found.append(Damage(span.start, span.end, self.next_offset, max(after - 1, -1), cause))
        self.next_offset = max(self.next_offset, after)

    def _may_be_missing(self, last_offset: int) -> bool:
        first = self.next_offset
        return first < self._expected.gaps_below or any(
            start <= first and last_offset <= end for start, end in self._expected.lost
        )

    def _offset_cause(self, head: Header, ahead: int) -> DamageCause | None:
        """The error in the offset of a batch that matches its CRC; `ahead` is the offset after it."""
        low, next_offset = self.next_offset, head.next_offset
        follows_me = ahead < 0 or next_offset <= ahead
        if not low <= head.base_offset < self._limit or (not follows_me and ahead >= low and head.base_offset != low):
            return DamageCause.OFFSET
        if head.base_offset > low and ahead == low + next_offset - head.base_offset:
            return DamageCause.OFFSET  # the next batch shows that nothing is missing here
        return None

    def _epoch_cause(self, head: Header, following: Header | None, beyond: Header | None) -> DamageCause | None:
        """The error in its leader epoch; `following` and `beyond` are the sound batches after it."""
        right = self._right_epoch(head)
        if right >= 0:
            return None if head.leader_epoch == right else DamageCause.EPOCH
        if self._covered or following is None:
            return DamageCause.EPOCH if not self._covered and head.leader_epoch < self._epoch else None
        before, after = self._epoch, following.leader_epoch
        if before < 0 and beyond is not None:
            after = max(
                after, beyond.leader_epoch
            )  # of the first two, the wrong one is the one that the third does not follow
        return DamageCause.EPOCH if before <= after and not before <= head.leader_epoch <= after else None

    def _sound_head(self, spans: Sequence[ByteSpan], at: int) -> Header | None:
        """The header of a batch that is sound by itself and has its offset's leader epoch."""
        head = spans[at].head if at < len(spans) and spans[at].cause is None else None
        return None if head is None or self._right_epoch(head) not in {-1, head.leader_epoch} else head

    def _right_epoch(self, head: Header) -> int:
        epoch_at = self._expected.epoch_at
        return epoch_at(head.base_offset) if epoch_at is not None else -1
