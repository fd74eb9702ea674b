"""Retention of a queue: by age, number of entries and bytes; the oldest entries are removed first. Pure.

A record in the shard's log trims a queue before it is read: entries that one read skipped appear in no later read. The
size of a queue is counted when it is examined and then remembered: each examination costs only what is new. The
remembered size is too large if entries were deleted since, so it is counted again before anything is trimmed.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterator
from enum import Enum
from typing import Final, NamedTuple

from duramen.base.ids import Position
from duramen.base.ports import StateRows
from duramen.queues.answers import entry_size
from duramen.queues.names import HASH_BYTES, Queue
from duramen.queues.reading import entries_from
from duramen.queues.rows import QueueState, number_of, position_of, queue_end, run_key, state_of
from duramen.queues.runs import QueueEntry

__all__ = ["ALL", "Look", "Retention", "RetentionCounts", "RetentionSweep"]

_AT_ONCE: Final = 2_000
"""The number of entries counted, or trimmed, in one step."""
_KNOWN: Final = 10_000
"""The number of queues with remembered counts."""
_SWEPT: Final = 100
"""The number of queues swept in one step."""


class Retention(NamedTuple):
    """The limits of a queue in age, bytes, and entries; -1: unlimited."""

    ms: int = -1
    bytes: int = -1
    entries: int = -1

    @property
    def counts(self) -> bool:
        """Whether entries have to be counted."""
        return self.bytes >= 0 or self.entries >= 0

    def outdates(self, entry: QueueEntry, now_ms: int) -> bool:
        """Whether an entry is too old."""
        return self.ms >= 0 and entry.timestamp + self.ms <= now_ms


ALL: Final = Retention()
"""Everything is kept until it is deleted."""


class Look(Enum):
    """The result of a look at a queue: nothing to trim, something to trim, or not counted completely."""

    KEEPS = "keeps"
    TRIMS = "trims"
    COUNTS = "counts"


class _Trimmed(NamedTuple):
    """A trim in progress: the remaining counts, and the offset up to which it changes rows."""

    entries: int
    bytes: int
    through: int


class _Count:
    """The count of a queue's entries up to `end`; there may be fewer if it is `stale`, or after some expire.

    The rows of counted entries have keys below `through`: a run has that of its last entry, which may be deleted.
    """

    __slots__ = ("bytes", "end", "entries", "expires_ms", "stale", "through", "trimmed")

    def __init__(self) -> None:
        self.end = 0
        self.through = 0
        self.entries = 0
        self.bytes = 0
        self.stale = False
        self.expires_ms = 0
        self.trimmed: _Trimmed | None = None

    def over(self, kept: Retention) -> bool:
        return 0 <= kept.entries < self.entries or 0 <= kept.bytes < self.bytes

    def add(self, entries: Iterator[QueueEntry], now_ms: int) -> bool:
        """Count entries from `end` on; returns whether all were counted."""
        for number, entry in enumerate(entries):
            if number >= _AT_ONCE:
                return False
            if not entry.expired(now_ms):
                self.entries += 1
                self.bytes += entry_size(entry)
                if entry.expires_ms:
                    self.expires_ms = min(self.expires_ms or entry.expires_ms, entry.expires_ms)
            self.end = entry.position.offset + 1
        return True


class RetentionCounts:
    """The counts of a shard's queues, from their last examinations."""

    def __init__(self, most: int = _KNOWN) -> None:
        self._most = most
        self._counts: OrderedDict[bytes, _Count] = OrderedDict()

    def look(self, rows: StateRows, queue: bytes, kept: Retention, now_ms: int) -> Look:
        """Look at a queue."""
        state, over = state_of(rows, queue), False
        if kept.counts:
            count = self._counts.get(queue)
            if count is None or (count.stale and (count.over(kept) or kept.bytes >= 0)):
                count = self._counts[queue] = _Count()
            count.stale = count.stale or 0 < count.expires_ms <= now_ms
            self._counts.move_to_end(queue)
            while len(self._counts) > self._most:
                self._counts.popitem(last=False)
            counted = count.add(entries_from(rows, queue, state, count.end), now_ms)
            count.through = position_of(rows).offset
            over = count.over(kept)
            if not counted or (over and count.stale):
                return Look.COUNTS
        return Look.TRIMS if over or _outdated(rows, queue, state, kept, now_ms) else Look.KEEPS

    def trim(self, rows: StateRows, queue: bytes, kept: Retention, now_ms: int) -> Position | None:
        """The position up to which a queue is to be trimmed; None: nothing to trim, or it has to be looked at again."""
        if self.look(rows, queue, kept, now_ms) is not Look.TRIMS:
            return None
        count = self._counts.get(queue)
        entries, size = (0, 0) if count is None else (count.entries, count.bytes)
        last: Position | None = None
        for number, entry in enumerate(entries_from(rows, queue, state_of(rows, queue), 0)):
            over = 0 <= kept.entries < entries or 0 <= kept.bytes < size
            gone = entry.expired(now_ms)
            if number >= _AT_ONCE or not (over or gone or kept.outdates(entry, now_ms)):
                break
            last = entry.position
            if not gone:
                entries, size = entries - 1, size - entry_size(entry)
        if last is None:
            return None
        if count is not None:
            row = next(rows.scan(run_key(queue, last.offset), queue_end(b"r", queue)), None)
            count.trimmed = _Trimmed(entries, size, last.offset if row is None else number_of(row[0]))
        return Position(last.leader_epoch, last.offset + 1)

    def turn(self, queue: bytes) -> None:
        """The next command on a queue: an earlier trim was stored by now, or never will be."""
        count = self._counts.get(queue)
        if count is not None and count.trimmed is not None:
            del self._counts[queue]

    def written(self, keys: Collection[bytes]) -> None:
        """Rows of these keys were written."""
        for key in keys if self._counts else ():
            kind, queue = key[:1], key[1 : 1 + HASH_BYTES]
            count = self._counts.get(queue) if kind in (b"r", b"o", b"s") else None
            if count is None:
                continue
            trimmed = count.trimmed
            if kind == b"s":
                count.stale = count.stale or trimmed is None
                if trimmed is not None:
                    count.entries, count.bytes, count.trimmed = trimmed.entries, trimmed.bytes, None
            elif number_of(key) < count.through and (trimmed is None or number_of(key) > trimmed.through):
                count.stale = True


def _outdated(rows: StateRows, queue: bytes, state: QueueState, kept: Retention, now_ms: int) -> bool:
    """Whether the first entry of a queue is too old."""
    if kept.ms < 0:
        return False
    first = next(entries_from(rows, queue, state, 0), None)
    return first is not None and kept.outdates(first, now_ms)


class RetentionSweep:
    """Looks at all queues of a shard, in steps, for those without readers.

    It starts over after puts, a change of the retention, or when an entry becomes too old.
    """

    def __init__(self) -> None:
        self._kept = ALL
        self._wanted = True
        self._after = b""
        self._due_ms: int | None = None  # the earliest time at which a seen entry becomes too old
        self._passes = False

    def put(self) -> None:
        """An entry was put into a queue."""
        self._wanted = True

    def step(self, rows: StateRows, kept: Retention, now_ms: int) -> list[Queue]:
        """Queues to look at next; none if there is no need."""
        if not self._passes:
            if not (self._wanted or kept != self._kept or (self._due_ms is not None and self._due_ms <= now_ms)):
                return []
            self._passes, self._wanted, self._kept, self._due_ms = True, False, kept, None
        found = list[Queue]()
        after = b"n" + self._after + b"\x00" * bool(self._after)
        for number, (key, name) in enumerate(rows.scan(after, b"o")):
            if number >= _SWEPT:
                return found
            self._after = key[1:]
            queue = Queue(name, self._after)
            found.append(queue)
            self._note(rows, queue, kept, now_ms)
        self._passes, self._after = False, b""
        return found

    def _note(self, rows: StateRows, queue: Queue, kept: Retention, now_ms: int) -> None:
        first = next(entries_from(rows, queue.hash, state_of(rows, queue.hash), 0), None)
        if kept.ms < 0 or first is None:
            return
        if kept.outdates(first, now_ms):
            self._wanted = True  # there may be more after it
        else:
            due_ms = first.timestamp + kept.ms
            self._due_ms = due_ms if self._due_ms is None else min(self._due_ms, due_ms)
