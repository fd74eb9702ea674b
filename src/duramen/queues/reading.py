"""Reads entries of a queue from the view of its shard. Pure.

A read starts at the queue's head and ends before the rows of the next queue, so that deleted rows of other queues cost
nothing.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from duramen.base.errors import (
    QueueEntryGone,
    QueueHistoryRewritten,
    QueuePositionFuture,
    QueuePositionUnknown,
    QueueVersionStale,
)
from duramen.base.ids import Position
from duramen.base.ports import StateRows
from duramen.queues.answers import entry_json_size, entry_size, run_records, too_large
from duramen.queues.names import Queue
from duramen.queues.positions import FIRST, position_text
from duramen.queues.rows import (
    EMPTY_STATE,
    HistoryRange,
    Overlay,
    QueueState,
    edited_run,
    epoch_of,
    name_key,
    number_of,
    overlay_key,
    overlay_of,
    overlays_at,
    position_of,
    queue_end,
    run_key,
    runs_at,
    state_of,
    times_key,
)
from duramen.queues.runs import Body, QueueEntry, Run, body_without_times, entry_of, leader_epoch_of, runs

__all__ = [
    "Counted",
    "EntryFinder",
    "Names",
    "Retrieved",
    "RetrievedBatches",
    "Where",
    "count_entries",
    "entries_from",
    "names",
    "resolve_replaced",
    "resolve_start",
    "retrieve",
    "retrieve_batches",
]

Where = Position | Literal["start", "end"]
"""The start of a read."""


class Retrieved(NamedTuple):
    """Entries in order, and the position of the next read."""

    entries: list[QueueEntry]
    next: Position

    @property
    def is_empty(self) -> bool:
        """Whether there are no entries."""
        return not self.entries


class RetrievedBatches(NamedTuple):
    """Like `Retrieved`, with record batches."""

    batches: list[bytes]
    next: Position

    @property
    def is_empty(self) -> bool:
        """Whether there are no batches."""
        return not self.batches


class Counted(NamedTuple):
    """The counts of a part of a queue; `next` is the start of the rest, -1: none."""

    entries: int
    bytes: int
    delayed: int
    first: Position | None
    last: Position | None
    oldest_ms: int
    next: int


class Names(NamedTuple):
    """Names of queues in the order of their hashes; `next` is the hash after which others follow, None: none do."""

    names: list[bytes]
    next: bytes | None


def names(rows: StateRows, prefix: bytes, after: bytes, limit: int, most: int) -> Names:
    """Names that start with `prefix`, after a hash: at most `limit`, of at most `most` that are read."""
    found, last = list[bytes](), after
    for number, (key, name) in enumerate(rows.scan(b"n" + after + b"\x00" * bool(after), b"o")):
        if number >= most or len(found) >= limit:
            return Names(found, last)
        last = key[1:]
        if name.startswith(prefix):
            found.append(name)
    return Names(found, None)


def count_entries(rows: StateRows, queue: bytes, start: int, most: int, now_ms: int) -> Counted:
    """Count the entries of a queue from an offset on, up to a number."""
    count, size, delayed, oldest_ms = 0, 0, 0, 0
    first: Position | None = None
    last: Position | None = None
    for number, entry in enumerate(entries_from(rows, queue, state_of(rows, queue), start)):
        if number >= most:
            return Counted(count, size, delayed, first, last, oldest_ms, entry.position.offset)
        if entry.expired(now_ms):
            continue
        count, size, delayed = count + 1, size + entry_size(entry), delayed + (entry.visible_ms > now_ms)
        oldest_ms = min(oldest_ms, entry.timestamp) if count > 1 else entry.timestamp
        first, last = first or entry.position, entry.position
    return Counted(count, size, delayed, first, last, oldest_ms, -1)


def retrieve(
    rows: StateRows, queue: bytes, where: Where, limit: int, max_bytes: int, now_ms: int, *, delayed: bool = False,
    json_bytes: int = 0,
) -> Retrieved:  # fmt: skip
    """Entries from a position on, up to a number and, except for the first, a size.

    With `json_bytes` sizes are those in a JSON response, and that is the largest size of the first entry. Expired
    entries are left out, and, unless `delayed` ones are requested, those whose delay is not over. Raises
    QueueHistoryRewritten, QueuePositionFuture, QueuePositionUnknown, QueueEntryTooLarge.
    """
    state = state_of(rows, queue)
    start = resolve_start(rows, state, where)
    found, size, following = list[QueueEntry](), 0, start
    if where == "end" or limit <= 0:
        return Retrieved(found, following)
    for entry in entries_from(rows, queue, state, start.offset):
        if entry.expired(now_ms) or (entry.visible_ms > now_ms and not delayed):
            continue
        size += entry_json_size(b"", entry) if json_bytes else entry_size(entry)
        if len(found) >= limit or (found and size > max_bytes):
            break
        if 0 < json_bytes < size and not found:
            raise too_large(entry, size, json_bytes)
        found.append(entry)
        following = Position(entry.position.leader_epoch, entry.position.offset + 1)
    return Retrieved(found, following)


def retrieve_batches(
    rows: StateRows, queue: Queue, where: Where, limit: int, max_bytes: int, now_ms: int, *, delayed: bool = False
) -> RetrievedBatches:
    """Like `retrieve`, as batches; entries have the same sizes."""
    name, hashed = queue
    state = state_of(rows, hashed)
    following = resolve_start(rows, state, where)
    found = list[bytes]()
    if where == "end" or limit <= 0:
        return RetrievedBatches(found, following)
    start = max(following.offset, state.head)
    over = _Overlays(rows, hashed, start)
    plain = not state.done and rows.get(times_key(hashed)) is None
    for key, data in rows.scan(run_key(hashed, start), queue_end(b"r", hashed)):
        run, more = over.applied(data, number_of(key)), True
        if not plain:
            run = _shown(run, state, now_ms, delayed=delayed)
        while more:
            part = run_records(run, name, start, limit, max_bytes, any_first=not found)
            if part.entries:
                found.append(part.batch)
                start, limit, max_bytes = part.last + 1, limit - part.entries, max_bytes - part.size
                following = Position(leader_epoch_of(run), start)
            elif part.more:
                return RetrievedBatches(found, following)
            more = part.more
    return RetrievedBatches(found, following)


def _shown(run: bytes, state: QueueState, now_ms: int, *, delayed: bool) -> bytes:
    """A run with only its shown entries, as if they had no times."""
    old = Run(run)
    bodies = list[Body]()
    for offset, body in old.bodies():
        shown = body and not state.done_with(offset)
        entry = entry_of(Position(old.leader_epoch, offset), body) if shown else None
        if entry is None or entry.expired(now_ms) or (entry.visible_ms > now_ms and not delayed):
            bodies.append((offset, b""))
        else:
            bodies.append((offset, body_without_times(body)))
    return next(runs(bodies, old.leader_epoch, 1 << 40))[1]


def resolve_start(rows: StateRows, state: QueueState, where: Where) -> Position:
    """The start position. Raises like `retrieve`."""
    if where == "start":
        return FIRST
    if where == "end":
        return position_of(rows)
    _check(rows, where)
    taken = state.rewritten(where.offset)
    if taken is not None:
        raise _rewritten(where, taken)
    return where


def resolve_replaced(rows: StateRows, queue: bytes, where: Where) -> Position:
    """The position from which on a queue is replaced. Raises like `retrieve`.

    A position of another queue is refused if it is recognised: not among entries that are gone without a trace.
    """
    state = state_of(rows, queue)
    start = resolve_start(rows, state, where)
    if isinstance(where, Position) and not _belongs(rows, queue, state, start):
        raise QueuePositionUnknown(
            f"the position {position_text(start)} is of no entry of this queue, and follows none: it is of another"
            " queue, or the entry was deleted"
        )
    return start


def _belongs(rows: StateRows, queue: bytes, state: QueueState, position: Position) -> bool:
    """Whether a position may be of this queue: of an entry or after one, or one that every queue has."""
    offset = position.offset
    near = [at for at in (offset - 1, offset) if at >= 0]
    if position == FIRST or offset == position_of(rows).offset or any(state.done_with(at) for at in near):
        return True
    if any(one.start.offset == offset for one in state.ranges):
        return True
    row = next(rows.scan(run_key(queue, near[0]), queue_end(b"r", queue)), None)
    if row is None:  # it is after all entries
        return state != EMPTY_STATE or rows.get(name_key(queue)) is not None
    offsets = Run(row[1]).offsets
    return any(at in offsets for at in near)


def _check(rows: StateRows, position: Position) -> None:
    """Raise if a position is of no record, and after none."""
    text, (_, end) = position_text(position), position_of(rows)
    if position.offset > end:
        raise QueuePositionFuture(f"the position {text} is not there yet: the queue's shard ends at offset {end}")
    near = [offset for offset in (position.offset - 1, position.offset) if offset >= 0]
    if position != FIRST and not any(epoch_of(rows, offset, position.leader_epoch) for offset in near):
        raise QueuePositionUnknown(
            f"the position {text} is of a leader epoch in which there was nothing at this offset: what was there is"
            " lost, or it is no position of this space"
        )


def _check_not_taken_back(state: QueueState, position: Position) -> None:
    """Raise QueueHistoryRewritten if the entry at a position was replaced."""
    taken = state.taken_back(position.offset)
    if taken is not None:
        raise _rewritten(position, taken)


def _rewritten(position: Position, taken: HistoryRange) -> QueueHistoryRewritten:
    start = position_text(taken.start)
    said = f" by {taken.by}" if taken.by else ""
    why = f": {taken.reason}" if taken.reason else ""
    error = QueueHistoryRewritten(
        f"the position {position_text(position)} is among what was taken back from {start} on{said}{why}"
    )
    error.start, error.by, error.reason = start, taken.by, taken.reason
    return error


class EntryFinder:
    """Finds entries of a queue by their positions; caches the last run."""

    def __init__(self, rows: StateRows, queue: bytes, now_ms: int) -> None:
        self._rows = rows
        self._queue = queue
        self._now_ms = now_ms
        self._state = state_of(rows, queue)
        self._end = position_of(rows).offset
        self._run: Run | None = None

    def find(self, position: Position) -> QueueEntry:
        """The entry at a position.

        A position without an entry and one whose surroundings are all gone cannot be distinguished: both count as gone.
        Raises QueueEntryGone, QueuePositionUnknown, QueuePositionFuture, QueueHistoryRewritten.
        """
        offset, text = position.offset, position_text(position)
        if offset >= self._end:
            raise QueuePositionFuture(
                f"the position {text} is not there yet: the queue's shard ends at offset {self._end}"
            )
        run = None if self._state.done_with(offset) else self._run_of(offset)
        epoch = position.leader_epoch
        if not (epoch_of(self._rows, offset, epoch) if run is None else run.leader_epoch == epoch):
            raise QueuePositionUnknown(f"the position {text} is of no entry: its offset is of another leader epoch")
        _check_not_taken_back(self._state, position)
        if run is None:
            raise QueueEntryGone(f"there is no entry at {text} any more, or there was none in this queue")
        place = bisect_left(run.offsets, offset)
        if run.offsets[place] != offset:
            raise QueuePositionUnknown(f"the position {text} is of an entry of another queue")
        overlay = self._rows.get(overlay_key(self._queue, offset))
        entry = _entry(epoch, offset, run.body(place), None if overlay is None else overlay_of(overlay))
        if entry is None:
            raise QueueEntryGone(f"the entry at {text} was deleted")
        if entry.expired(self._now_ms):
            raise QueueEntryGone(f"the entry at {text} has expired")
        return entry

    def check(self, wanted: Sequence[tuple[Position, int | None]]) -> None:
        """Raise as `find` for the first entry that is gone, or QueueVersionStale if it has not the version given."""
        known = self._lasting([position.offset for position, _ in wanted])
        for position, version in wanted:
            found = known.get(position.offset)
            if found is None or found[0] != position.leader_epoch:
                found = position.leader_epoch, self.find(position).version
            if version not in (None, found[1]):
                text = position_text(position)
                raise QueueVersionStale(f"the entry at {text} has the version {found[1]}, not {version}")

    def _lasting(self, offsets: Sequence[int]) -> dict[int, tuple[int, int]]:
        """The leader epochs and versions of the entries at these offsets that are there and never expire.

        For many entries this takes a part of the time of `find`, which knows the reason where one is not there.
        """
        found, state = dict[int, tuple[int, int]](), self._state
        wanted = sorted(offset for offset in offsets if state.head <= offset < self._end)
        if state.done or state.ranges:
            wanted = [one for one in wanted if not state.done_with(one) and state.taken_back(one) is None]
        for run, some in runs_at(self._rows, self._queue, wanted):
            over = dict(overlays_at(self._rows, self._queue, some))
            for offset in some:
                index = run.index(offset)
                version = None if index < 0 else run.lasting_version(index)
                overlay = over.get(offset) if over else None
                if version is not None and (overlay is None or not overlay.deleted):
                    found[offset] = run.leader_epoch, version if overlay is None else overlay.version
        return found

    def there(self, position: Position) -> QueueEntry | None:
        """The entry at a position; None if it is gone."""
        try:
            return self.find(position)
        except (QueueEntryGone, QueueHistoryRewritten):
            return None

    def _run_of(self, offset: int) -> Run | None:
        if self._run is None or not self._run.first <= offset <= self._run.last:
            row = next(self._rows.scan(run_key(self._queue, offset), queue_end(b"r", self._queue)), None)
            self._run = None if row is None else Run(row[1])
        return self._run if self._run is not None and self._run.first <= offset else None


def _entry(leader_epoch: int, offset: int, body: bytes, overlay: Overlay | None) -> QueueEntry | None:
    if not body or (overlay is not None and overlay.deleted):
        return None
    entry = entry_of(Position(leader_epoch, offset), body)
    return entry if overlay is None else entry._replace(version=overlay.version, value=overlay.value)


def entries_from(rows: StateRows, queue: bytes, state: QueueState, start: int) -> Iterator[QueueEntry]:
    """The entries of a queue from an offset on that are neither deleted nor acknowledged, including delayed ones."""
    start = max(start, state.head)
    over = _Overlays(rows, queue, start)
    for _, data in rows.scan(run_key(queue, start), queue_end(b"r", queue)):
        run = Run(data)
        for offset, body in run.bodies():
            if offset >= start and not (state.done and state.done_with(offset)):
                entry = _entry(run.leader_epoch, offset, body, over.at(offset))
                if entry is not None:
                    yield entry


class _Overlays:
    """The overlays of a queue from an offset on, for runs in order."""

    def __init__(self, rows: StateRows, queue: bytes, start: int) -> None:
        self._rows = rows.scan(overlay_key(queue, start), queue_end(b"o", queue))
        self._next = next(self._rows, None)

    def applied(self, run: bytes, last: int) -> bytes:
        """A run that ends at `last` with its overlays applied."""
        found: dict[int, Overlay] = {}
        while self._next is not None and (offset := number_of(self._next[0])) <= last:
            found[offset] = overlay_of(self._next[1])
            self._next = next(self._rows, None)
        if not found:
            return run
        return edited_run(run, found)

    def at(self, offset: int) -> Overlay | None:
        while self._next is not None and number_of(self._next[0]) < offset:
            self._next = next(self._rows, None)
        if self._next is None or number_of(self._next[0]) != offset:
            return None
        return overlay_of(self._next[1])
