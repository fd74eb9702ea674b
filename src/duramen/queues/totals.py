"""The number and the size of all entries of a shard, kept in a row by each step that applies records. Pure.

Sizes are those of `entry_size`. Delayed and leased entries count; deleted, acknowledged and trimmed ones do not. An
entry that expires counts until the time index deletes it.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from duramen.base.ports import StateRows
from duramen.queues.pending_rows import PendingRows
from duramen.queues.rows import (
    Overlay,
    QueueState,
    overlays,
    overlays_at,
    position_of,
    queue_end,
    run_key,
    runs_at,
    state_of,
)
from duramen.queues.runs import Run, plain_run_size, sizes_of

__all__ = ["NOTHING", "TOTALS_KEY", "ShardTotals", "TotalsChange", "totals_of"]

TOTALS_KEY: Final = b"u"
_TOTALS: Final = struct.Struct(">QQQ")
_END: Final = 1 << 62


class ShardTotals(NamedTuple):
    """The number of the entries of a shard, and their bytes."""

    entries: int = 0
    bytes: int = 0

    def plus(self, entries: int, size: int) -> "ShardTotals":
        """With more entries and bytes."""
        return ShardTotals(self.entries + entries, self.bytes + size)


NOTHING: Final = ShardTotals()


def totals_of(rows: StateRows) -> ShardTotals | None:
    """The totals in the rows; None if a node of an older version has written rows since."""
    found = rows.get(TOTALS_KEY)
    if found is None:
        return None if position_of(rows).offset else NOTHING
    entries, size, offset = _TOTALS.unpack(found)
    return ShardTotals(entries, size) if offset == position_of(rows).offset else None


def _measured(rows: StateRows) -> ShardTotals:
    """The totals of all queues in the rows, counted."""
    found = NOTHING
    for key, _ in rows.scan(b"n", b"o"):
        found = found.plus(*_between(rows, key[1:], 0, _END))
    return found


def _between(rows: StateRows | PendingRows, queue: bytes, first: int, end: int) -> ShardTotals:
    """The entries of a queue between two offsets."""
    state, entries, size = state_of(rows, queue), 0, 0
    first = max(first, state.head)
    known = dict(overlays(rows, queue, first, end - 1))
    for _, data in rows.scan(run_key(queue, first), queue_end(b"r", queue)):
        run = Run(data)
        if run.first >= end:
            break
        for offset, body in run.bodies():
            if body and first <= offset < end and not state.done_with(offset):
                more = _size(body, known.get(offset))
                entries, size = entries + (more > 0), size + more
    return ShardTotals(entries, size)


def _size(body: bytes, overlay: Overlay | None) -> int:
    """The size of an entry with a body; 0 if it was deleted."""
    fixed, value = sizes_of(body)
    if overlay is None:
        return fixed + value
    return 0 if overlay.deleted else fixed + len(overlay.value or b"")


class TotalsChange:
    """The change of the totals by a step, counted before the rows change."""

    def __init__(self) -> None:
        self._entries = 0
        self._bytes = 0

    def added_run(self, run: bytes) -> None:
        """A new run has entries without keys, headers and times."""
        count, size = plain_run_size(run)
        self._entries, self._bytes = self._entries + count, self._bytes + size

    def added(self, bodies: Iterable[bytes]) -> None:
        """New entries have these bodies."""
        for body in bodies:
            self._entries, self._bytes = self._entries + 1, self._bytes + sum(sizes_of(body))

    def removed(self, rows: PendingRows, queue: bytes, first: int = 0, end: int = _END) -> None:
        """The entries of a queue between two offsets are removed."""
        gone = _between(rows, queue, first, end)
        self._entries, self._bytes = self._entries - gone.entries, self._bytes - gone.bytes

    def acknowledged(self, rows: PendingRows, queue: bytes, offsets: Sequence[int]) -> None:
        """The entries of a queue at these ascending offsets are acknowledged."""
        state = state_of(rows, queue)
        for run, some in runs_at(rows, queue, [offset for offset in offsets if not state.done_with(offset)]):
            known = dict(overlays_at(rows, queue, some))
            for offset in some:
                self._gone(run, offset, known.get(offset))

    def _gone(self, run: Run, offset: int, overlay: Overlay | None) -> None:
        index = run.index(offset)
        size = 0 if index < 0 else _size(run.body(index), overlay)
        self._entries, self._bytes = self._entries - (size > 0), self._bytes - size

    def edited(self, state: QueueState, run: Run, known: dict[int, Overlay], edits: dict[int, Overlay]) -> None:
        """Entries of a run with overlays get others."""
        for offset, edit in edits.items():
            before = known.get(offset)
            if state.done_with(offset):
                continue
            if edit.deleted:
                self._gone(run, offset, before)
            else:
                body = run.body(run.index(offset))
                self._bytes += _size(body, edit) - _size(body, before)

    def written(self, before: StateRows, rows: PendingRows, next_offset: int) -> None:
        """Write the new totals; counted from the rows before if these have none."""
        known = totals_of(before)
        found = (_measured(before) if known is None else known).plus(self._entries, self._bytes)
        rows.put(TOTALS_KEY, _TOTALS.pack(*found, next_offset))
