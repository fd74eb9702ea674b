"""Acknowledged entries: the head of a queue moves past them, and entries before the head are removed. Pure.

Acknowledged entries after an unacknowledged one are kept as ranges of offsets. Two ranges merge if no entry of the
queue lies between them: offsets are those of the shard's log, so a queue's entries have gaps between them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Final

from duramen.queues.pending_rows import PendingRows
from duramen.queues.rows import (
    delivery_key,
    overlay_key,
    overlay_of,
    queue_end,
    run_key,
    state_key,
    state_of,
    state_value,
)
from duramen.queues.runs import Run

__all__ = ["acknowledge", "drop_runs", "nothing_between", "remove_rows"]

_MOST_RANGES: Final = 100


def acknowledge(rows: PendingRows, queue: bytes, acks: Mapping[int, int]) -> dict[int, int]:
    """Acknowledge the entries at these offsets; without any, entries were deleted and ranges may merge.

    Returns the entries that must be deleted individually, in the form of `acks`: there are too many ranges for them.
    """
    state = state_of(rows, queue)
    new = [offset for offset in acks if not state.done_with(offset)]
    pieces = sorted([(*one, False) for one in state.done] + [(offset, offset, True) for offset in new])
    joined = [(0, state.head - 1, not acks)]
    for first, last, is_new in pieces:
        before = joined[-1]
        if (is_new or before[2]) and nothing_between(rows, queue, before[1], first):
            joined[-1] = before[0], last, True
        else:
            joined.append((first, last, is_new or not acks))
    head = joined[0][1] + 1
    if len(joined) == 1:
        head = _behind_what_is_gone(rows, queue, head)
    ranges = [(first, last) for first, last, _ in joined[1:]]
    kept, over = ranges[:_MOST_RANGES], ranges[_MOST_RANGES:]
    rows.put(state_key(queue), state_value(state._replace(head=head, done=tuple(kept))))
    drop_runs(rows, queue, state.head, head)
    newest = max(acks.values(), default=head)
    return {at: acks.get(at, newest) for first, last in over for at in _offsets(rows, queue, first, last)}


def nothing_between(rows: PendingRows, queue: bytes, last: int, first: int) -> bool:
    """Whether a queue has no entry between two offsets."""
    following = _following(rows, queue, last)
    return following is None or following >= first


def _following(rows: PendingRows, queue: bytes, offset: int) -> int | None:
    """The offset of the first entry after an offset that was not deleted."""
    for _, data in rows.scan(run_key(queue, offset + 1), queue_end(b"r", queue)):
        run = Run(data)
        for place in range(bisect_right(run.offsets, offset), len(run.offsets)):
            if run.body(place) and not _deleted(rows, queue, run.offsets[place]):
                return run.offsets[place]
    return None


def _deleted(rows: PendingRows, queue: bytes, offset: int) -> bool:
    overlay = rows.get(overlay_key(queue, offset))
    return overlay is not None and overlay_of(overlay).deleted


def _behind_what_is_gone(rows: PendingRows, queue: bytes, head: int) -> int:
    """The offset after the last run, if no entry of the queue is left."""
    if _following(rows, queue, head - 1) is None:
        for _, data in rows.scan(run_key(queue, head), queue_end(b"r", queue)):
            head = Run(data).last + 1
    return head


def _offsets(rows: PendingRows, queue: bytes, first: int, last: int) -> list[int]:
    found = list[int]()
    for _, data in rows.scan(run_key(queue, first), queue_end(b"r", queue)):
        run = Run(data)
        found += run.offsets[bisect_left(run.offsets, first) : bisect_right(run.offsets, last)]
        if run.last >= last:
            break
    return found


def drop_runs(rows: PendingRows, queue: bytes, old: int, head: int) -> None:
    """Remove the runs that lie wholly before the head, with their overlays."""
    if old == head:
        return
    found = list(rows.scan(run_key(queue, old), run_key(queue, head)))
    for key, data in found:
        rows.put(key, None)
        run = Run(data)
        remove_rows(rows, overlay_key(queue, run.first), overlay_key(queue, run.last + 1))
        remove_rows(rows, delivery_key(queue, run.first), delivery_key(queue, run.last + 1))


def remove_rows(rows: PendingRows, first: bytes, end: bytes) -> None:
    """Remove the rows with `first <= key < end`."""
    for key, _ in list(rows.scan(first, end)):
        rows.put(key, None)
