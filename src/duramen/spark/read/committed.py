"""Filters one partition's record batches: those of a transaction are held back until its marker. Pure.

Batches are not decoded: the bytes of open transactions are held, and released bytes are joined again. So the cost is
per batch, not per record.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from duramen.base.ports import Buffer
from duramen.codec.batch import CONTROL, TRANSACTIONAL, Header, batches
from duramen.codec.markers import NO_SEQUENCE, decode_marker
from duramen.spark.read.splits import ReadSplit

__all__ = ["CommittedRecords", "CountedRecords", "HeldBatch"]


class HeldBatch(NamedTuple):
    """A batch with the offsets `[first, end)` that was held back until the commit marker at offset `marker`.

    `sequence` is the transaction's commit sequence, from its marker.
    """

    first: int
    end: int
    marker: int
    sequence: int
    producer_id: int


class CountedRecords(NamedTuple):
    """Whole batches; their records from `first` on are shown, and `held` are the transactional ones."""

    data: Buffer
    first: int
    held: Sequence[HeldBatch] = ()


class CommittedRecords:
    """The records that count in `[first, end)`, as in `transaction_boundaries`.

    Batches come in order, from the share's base on.

    They continue to the last of the markers `behind`; of the records that these release, those before the end are
    shown.
    """

    def __init__(self, first: int, end: int, share: ReadSplit) -> None:
        self._first = first
        self._end = end
        self._floor = share.floor
        self._skipped = frozenset(share.skipped)
        self._behind = frozenset(share.behind)
        self._open: dict[int, list[tuple[int, int, bytes]]] = {}

    def pass_on(self, piece: memoryview) -> Iterator[CountedRecords]:
        """The records of these batches, and of released ones, that are shown now. Raises BatchCorrupt."""
        parts: list[Buffer] = []
        held: list[HeldBatch] = []
        start = stop = 0  # of adjacent batches in the piece

        for position, head in batches(piece):
            behind = position + head.size
            if head.attributes & CONTROL:
                sequence, ended = self._end_of(head, piece[position:behind])
                if ended:
                    parts += [piece[start:stop], *(data for _, _, data in ended)]
                    at = head.base_offset, sequence, head.producer_id
                    held += [HeldBatch(first, end, *at) for first, end, _ in ended]
                    start = stop = behind
            elif head.attributes & TRANSACTIONAL:
                if head.base_offset >= self._end:
                    continue
                batch = head.base_offset, head.next_offset, bytes(piece[position:behind])
                self._open.setdefault(head.producer_id, []).append(batch)
            elif head.next_offset <= self._first or head.base_offset >= self._end:
                continue
            elif head.base_offset < self._first:
                yield CountedRecords(piece[position:behind].toreadonly(), max(self._first, self._floor))
            elif stop == position:
                stop = behind
            else:
                parts.append(piece[start:stop])
                start, stop = position, behind
        parts = [part for part in (*parts, piece[start:stop]) if len(part)]
        if parts:
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            yield CountedRecords(memoryview(data).toreadonly(), self._floor, held)

    def _end_of(self, head: Header, batch: memoryview) -> tuple[int, list[tuple[int, int, bytes]]]:
        """The commit sequence of a marker, and the batches that it releases."""
        marker = decode_marker(batch)
        if marker is None:
            return NO_SEQUENCE, []
        held = self._open.pop(head.producer_id, [])
        counts = self._first <= head.base_offset < self._end or head.base_offset in self._behind
        shown = marker.commit and counts and head.base_offset not in self._skipped
        return marker.sequence, held if shown else []
