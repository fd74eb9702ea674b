"""The position at which transactional records count in a log: the commit markers that readers have seen."""

from typing import Final

from duramen.codec.batch import CONTROL, batches, header, records
from duramen.sim.checkers.history import SentRecords

__all__ = ["NEVER", "UNSURE", "CountedOffsets"]

NEVER: Final = 1 << 62
"""Aborted, or no marker is there yet."""
UNSURE: Final = -1
"""Its marker may have been where compaction has left nothing to see."""
_COMMITS: Final = b"\0\0\0\1"


class CountedOffsets:
    """The state of one reader that reads a log from its beginning, batch by batch, up to `reached`."""

    def __init__(self) -> None:
        self.reached = 0
        self._markers: dict[int, tuple[int, bool]] = {}
        self._holes: list[tuple[int, int]] = []

    def see(self, data: bytes) -> None:
        """Batches read from `reached` on, or from the start of the log."""
        for position, head in batches(data):
            if head.next_offset <= self.reached:
                continue
            if head.base_offset > self.reached:
                self._holes.append((self.reached, head.base_offset))
            if head.attributes & CONTROL:
                marker = next(records(data[position : position + head.size]), None)
                if marker is None:
                    self._holes.append((head.base_offset, head.next_offset))
                else:
                    self._markers[head.base_offset] = head.producer_id, marker.key == _COMMITS
            self.reached = head.next_offset

    def cut(self, end_offset: int) -> None:
        """The log ends there, and goes on with something else."""
        self.reached = min(self.reached, end_offset)
        self._markers = {at: marker for at, marker in self._markers.items() if at < end_offset}
        self._holes = [(first, min(end, end_offset)) for first, end in self._holes if first < end_offset]

    def of(self, sent: SentRecords) -> int | None:
        """Where the records of a batch that is in the log count; None: at their own offsets. Or NEVER, or UNSURE."""
        if sent.transaction is None or sent.base_offset is None:
            return None
        producer_id, first = header(sent.data).producer_id, sent.next_offset
        ends = (at for at, (whose, _) in self._markers.items() if whose == producer_id and at >= first)
        marker = min(ends, default=NEVER)
        if any(end > first and begin < marker for begin, end in self._holes):
            return UNSURE
        return marker if marker < NEVER and self._markers[marker][1] else NEVER
