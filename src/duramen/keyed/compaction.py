"""What compaction of a keyed stream may drop: records superseded at S0, and old enough tombstones. Pure.

No key is read. A record may be dropped if it counts below S0 and is superseded there. A tombstone that is its key's
newest record may be dropped after `delete.retention.ms`, once every older record of its key is gone from the earlier
segments, which are cleaned first; otherwise an older record would become the newest again.
"""

from collections.abc import Iterable
from typing import NamedTuple

from duramen.base.ports import Buffer
from duramen.keyed.samples import PositionSample, Samples

__all__ = ["Dropping", "next_s0", "tombstone_bound"]


class Dropping(NamedTuple):
    """A decision about the records below `end`, by the snapshot at `as_of`.

    `bits` from `base` on are set for those that stay. Tombstones below `tombstones_below` are dropped too. Records
    at or after `end` stay.
    """

    base: int
    end: int
    bits: Buffer
    tombstones_below: int = 0
    as_of: int = 0

    def stays(self, offset: int, *, tombstone: bool) -> bool:
        """Whether a record stays."""
        place = offset - self.base
        if offset >= self.end or place < 0:
            return True
        if tombstone and offset < self.tombstones_below:
            return False
        return bool(self.bits[place >> 3] >> (place & 7) & 1)

    def gone(self, kept: Buffer) -> bytes:
        """The bits of records that were to stay and are not `kept`: tombstones dropped now or earlier."""
        size = len(self.bits)
        gone = int.from_bytes(self.bits, "little") & ~int.from_bytes(kept, "little")
        return gone.to_bytes(size, "little")

    def dead(self, first: int, end: int) -> int:
        """The number of offsets in `[first, end)` without a remaining record, including those already empty."""
        low, high = max(first, self.base) - self.base, min(end, self.end) - self.base
        if low >= high:
            return 0
        some = int.from_bytes(self.bits[low >> 3 : (high + 7) >> 3], "little") >> (low & 7)
        return high - low - (some & ((1 << (high - low)) - 1)).bit_count()


def next_s0(s0: int, wanted: int, oldest_lease: int | None, position: int) -> int:
    """The next S0: it never decreases, and does not pass an open lease or the view.

    `wanted` is the view's position `snapshot.retention.ms` ago.
    """
    bound = min(wanted, position) if oldest_lease is None else min(wanted, position, oldest_lease)
    return max(s0, bound)


def tombstone_bound(
    samples: Samples, now_ms: int, delete_retention_ms: int, s0: int, cleaned_as_of: Iterable[int],
    held: int | None = None,
) -> PositionSample:  # fmt: skip
    """The sample below whose `floor` tombstones may be dropped; readers must have reached its `position`.

    `held` is the position of the slowest of the readers for which tombstones are kept longer. `cleaned_as_of`: for each
    segment before the present one, the S0 of its last cleaning.
    """
    found = samples.as_of(now_ms - delete_retention_ms)
    bound = min([s0, *cleaned_as_of, *([] if held is None else [held])])
    return found if found.position <= bound else samples.at(bound)
