"""The two passes of compaction over a segment's batches, for jobs: collecting keys, and writing remaining records.

Each call takes a bounded number of bytes, and rests while it computes. It touches only its arguments.
"""

from collections.abc import Iterator
from typing import Final

from duramen.codec.batch import CONTROL, Header, header
from duramen.codec.batch_filter import body, marker_type, rebuild, spans
from duramen.storage.maintenance.closed_segment import SegmentSource, Target
from duramen.storage.maintenance.offset_map import OffsetMap
from duramen.storage.maintenance.rests import Rests
from duramen.storage.planning.compaction import Cleaner, FinishedTransactions

__all__ = ["PausingTable", "rewrite", "survey"]

_STEP_BYTES: Final = 128 * 1024


def _decoded(source: SegmentSource) -> Iterator[tuple[Header, bytes, bytes]]:
    for head, whole in source.take(_STEP_BYTES):
        yield head, whole, body(whole, head)


class PausingTable:
    """A table of keys that rests on each access."""

    def __init__(self, table: OffsetMap, rests: Rests) -> None:
        self.latest = table.latest
        self._table = table
        self._rests = rests

    def newest(self, key: bytes) -> int:
        """The newest offset of `key`; -1 without one."""
        self._rests.piece()
        return self._table.newest(key)


def survey(
    source: SegmentSource, table: OffsetMap, transactions: FinishedTransactions, start: int, rests: Rests
) -> bool:
    """Add the keys of the next batches; returns whether the table is full."""
    rests.begin()
    for head, _, data in _decoded(source):
        if head.attributes & CONTROL:
            transactions.ends(head, marker_type(data))
        elif not transactions.discards(head):
            base = head.base_offset
            for span in rests.each(spans(data, head.records)):
                offset = base + span.offset_delta
                if span.key is not None and offset >= start and not table.put(span.key, offset):
                    table.latest = offset - 1
                    return True
        table.latest = max(table.latest, head.next_offset - 1)
    return False


def rewrite(source: SegmentSource, target: Target, cleaner: Cleaner, rests: Rests, *, last: bool) -> bool:
    """Write the remaining records of the next batches; returns whether any was removed or changed."""
    rests.begin()
    changed = False
    taken = list(_decoded(source))
    for at, (head, whole, data) in enumerate(taken):
        records = list(rests.each(spans(data, head.records)))
        marker = marker_type(data) if head.attributes & CONTROL else None
        ends = last and not source.left and at == len(taken) - 1
        verdict = cleaner.judge(head, records, marker, last=ends)
        if verdict.gone:
            changed = True
        elif len(verdict.kept) == len(records) and verdict.delete_horizon_ms < 0:
            target.add(whole, head)
        else:
            changed = True
            built = rebuild(head, data, verdict.kept, verdict.delete_horizon_ms)
            target.add(built, header(built))
    return changed
