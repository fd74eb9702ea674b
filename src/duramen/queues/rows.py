"""The rows of a shard's view. Pure except for the native package.

    n, hash                     the queue's name
    r, hash, uint64 offset      a run of entries, by the offset of its last one
    o, hash, uint64 offset      the result of an operation on the entry there, in a run: uint64 offset of the
                                operation, uint8 1 and the new value, 0: it is null; or -1: the entry is deleted
    s, hash                     the head, what was taken back, and what is done with behind the head
    m, hash                     if present, some of the queue's entries were delayed or may expire
    d, hash, uint64 offset      uint32 number of deliveries of the entry, int64 time from which it may be leased again
    t, uint64 time, hash,       1: the entry expires then; 0: it is shown, or may be leased again
       uint64 offset
    i, request hash             a request with an id: int64 time of its decision, uint32 leader epoch and uint64
                                offset of its first record, uint32 the number of its records, the digest of its content
                                (16 bytes), its kind
    j, uint64 number            int64 time of the decision, request hash: requests in the order of their arrival
    k                           uint64 number of the oldest of these, uint64 that of the next
    e, uint32 leader epoch      uint64 offset of the first record of a leader epoch
    w, g, a                     queues with owners (`owners`)
    u                           uint64 number of the shard's entries, uint64 their bytes, uint64: `p`'s offset then
    p                           uint32 leader epoch, uint64 offset: of the next record that is not applied

Keys are big-endian. A run has its last offset for a key, so that one seek finds the run of any offset.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from duramen.base.ids import Position
from duramen.base.native import is_installed
from duramen.base.ports import StateRows
from duramen.queues.runs import Run, body_with, runs

__all__ = [
    "EMPTY_STATE",
    "POSITION_KEY",
    "REQUEST_NUMBERS_KEY",
    "Delivered",
    "DueEntry",
    "HistoryRange",
    "Overlay",
    "QueueState",
    "RequestRow",
    "delivered_of",
    "delivered_value",
    "delivery_key",
    "due_entries",
    "due_key",
    "due_of",
    "edited_run",
    "epoch_key",
    "epoch_of",
    "is_due_key",
    "name_key",
    "number_of",
    "overlay_key",
    "overlay_of",
    "overlay_value",
    "overlays",
    "overlays_at",
    "plain_edited_run",
    "position_of",
    "position_value",
    "queue_end",
    "request_key",
    "request_number_key",
    "request_number_of",
    "request_number_value",
    "request_numbers",
    "request_numbers_value",
    "request_row",
    "request_value",
    "run_key",
    "runs_at",
    "state_key",
    "state_of",
    "state_value",
    "state_value_of",
    "times_key",
    "with_overlay",
    "with_range",
]

POSITION_KEY: Final = b"p"
REQUEST_NUMBERS_KEY: Final = b"k"
_U64: Final = struct.Struct(">Q")
_U32: Final = struct.Struct(">I")
_I64: Final = struct.Struct(">q")
_POSITION: Final = struct.Struct(">IQ")
_OVERLAY: Final = struct.Struct(">Qb")
_DELIVERED: Final = struct.Struct(">Iq")
_DUE: Final = struct.Struct(">Q16sQ")
_REQUEST: Final = struct.Struct(">qIQI16s")
_NUMBERS: Final = struct.Struct(">QQ")
_DELETED, _NULL, _VALUE = -1, 0, 1
_MOST_RANGES: Final = 100
_UNLIMITED: Final = 1 << 40
_FEW: Final = 4
"""So many rows are read one by one in less time than a scan takes to begin."""


class HistoryRange(NamedTuple):
    """The entries from `start` to the offset `end`, that of the replace record, were replaced."""

    start: Position
    end: int
    by: str
    reason: str


class QueueState(NamedTuple):
    """No entry is before `head`; replaced ranges, in the order of offsets.

    `done` are the first and last offsets of ranges after the head in which every entry was acknowledged.
    """

    head: int
    ranges: tuple[HistoryRange, ...]
    done: tuple[tuple[int, int], ...] = ()

    def done_with(self, offset: int) -> bool:
        """Whether an entry at this offset was acknowledged, or it and all before it are gone."""
        if offset < self.head:
            return True
        place = bisect_left(self.done, (offset + 1,)) - 1
        return place >= 0 and offset <= self.done[place][1]

    def rewritten(self, offset: int) -> HistoryRange | None:
        """The replaced range that a reader at this offset has partly read."""
        return next((one for one in self.ranges if one.start.offset < offset <= one.end), None)

    def taken_back(self, offset: int) -> HistoryRange | None:
        """The replaced range of the entry at this offset."""
        return next((one for one in self.ranges if one.start.offset <= offset <= one.end), None)


class Overlay(NamedTuple):
    """The result of the newest operation on an entry."""

    version: int
    deleted: bool
    value: bytes | None


class Delivered(NamedTuple):
    """The number of an entry's deliveries, and when it may be leased again."""

    deliveries: int = 0
    visible_ms: int = 0


class DueEntry(NamedTuple):
    """A time of an entry: it expires, or may be leased."""

    time_ms: int
    queue: bytes
    offset: int
    expires: bool


class RequestRow(NamedTuple):
    """A request with an id: the position of its first record, the number of its records, and its digest."""

    time_ms: int
    position: Position
    records: int
    digest: bytes
    kind: str


EMPTY_STATE: Final = QueueState(0, ())
_STATES: Final = msgspec.msgpack.Decoder(QueueState)


def name_key(queue: bytes) -> bytes:
    """The key of the row with a queue's name; `queue` is the name's hash here and below."""
    return b"n" + queue


def run_key(queue: bytes, last: int) -> bytes:
    """The key of the run that ends at that offset; runs with an entry at that offset or later are at or after it."""
    return b"r" + queue + _U64.pack(last)


def overlay_key(queue: bytes, offset: int) -> bytes:
    """The key of the overlay of the entry at that offset."""
    return b"o" + queue + _U64.pack(offset)


def queue_end(kind: bytes, queue: bytes) -> bytes:
    """The end of all runs (r) or all overlays (o) of a queue."""
    return kind + queue + b"\xff" * 9


def state_key(queue: bytes) -> bytes:
    """The key of the state of a queue."""
    return b"s" + queue


def times_key(queue: bytes) -> bytes:
    """The key of the row that marks queues that have had entries with delays or expiry."""
    return b"m" + queue


def delivery_key(queue: bytes, offset: int) -> bytes:
    """The key of the deliveries of the entry at that offset."""
    return b"d" + queue + _U64.pack(offset)


def delivered_value(delivered: Delivered) -> bytes:
    """Deliveries as a row's value."""
    return _DELIVERED.pack(*delivered)


def delivered_of(rows: StateRows, queue: bytes, offset: int) -> Delivered:
    """The stored number of an entry's deliveries."""
    found = rows.get(delivery_key(queue, offset))
    return Delivered() if found is None else Delivered(*_DELIVERED.unpack(found))


def due_key(time_ms: int, queue: bytes, offset: int) -> bytes:
    """The key of a time of an entry."""
    return b"t" + _DUE.pack(time_ms, queue, offset)


def due_of(key: bytes, value: bytes = b"") -> DueEntry:
    """The content of a row of the time index; without its value it is unknown whether the entry expires."""
    time_ms, queue, offset = _DUE.unpack_from(key, 1)
    return DueEntry(time_ms, queue, offset, value == b"\x01")


def is_due_key(key: bytes) -> bool:
    """Whether it is the key of a row of the time index."""
    return key[:1] == b"t"


def due_entries(rows: StateRows, since_ms: int, until_ms: int) -> Iterator[tuple[bytes, DueEntry]]:
    """Rows of the time index between two times, in order."""
    for key, value in rows.scan(b"t" + _U64.pack(since_ms), b"t" + _U64.pack(until_ms + 1)):
        yield key, due_of(key, value)


def request_key(request: bytes) -> bytes:
    """The key of a request, by the hash of its id."""
    return b"i" + request


def request_value(row: RequestRow) -> bytes:
    """A request as a row's value."""
    return _REQUEST.pack(row.time_ms, *row.position, row.records, row.digest) + row.kind.encode()


def request_row(rows: StateRows, request: bytes) -> RequestRow | None:
    """The request with that id, by its hash, if it is known."""
    found = rows.get(request_key(request))
    if found is None:
        return None
    time_ms, leader_epoch, offset, count, digest = _REQUEST.unpack_from(found)
    return RequestRow(time_ms, Position(leader_epoch, offset), count, digest, found[_REQUEST.size :].decode())


def request_number_key(number: int) -> bytes:
    """The key of a request by its number."""
    return b"j" + _U64.pack(number)


def request_number_value(time_ms: int, request: bytes) -> bytes:
    """The time of a request's decision, and the hash of its id, as a row's value."""
    return _I64.pack(time_ms) + request


def request_number_of(rows: StateRows, number: int) -> tuple[int, bytes]:
    """The time of a request's decision, and the hash of its id, by its number."""
    found = rows.get(request_number_key(number)) or bytes(8)
    return _I64.unpack_from(found)[0], found[8:]


def request_numbers(rows: StateRows) -> tuple[int, int]:
    """The number of the oldest known request, and that of the next one."""
    found = rows.get(REQUEST_NUMBERS_KEY)
    return (0, 0) if found is None else (int.from_bytes(found[:8], "big"), int.from_bytes(found[8:], "big"))


def request_numbers_value(oldest: int, following: int) -> bytes:
    """The numbers of requests as a row's value."""
    return _NUMBERS.pack(oldest, following)


def epoch_key(leader_epoch: int) -> bytes:
    """The key of the first offset of a leader epoch."""
    return b"e" + _U32.pack(leader_epoch)


def number_of(key: bytes) -> int:
    """The offset in the key of a run or an overlay."""
    found: int = _U64.unpack_from(key, len(key) - 8)[0]
    return found


def overlay_value(overlay: Overlay) -> bytes:
    """An overlay as a row's value."""
    kind = _DELETED if overlay.deleted else _NULL if overlay.value is None else _VALUE
    return _OVERLAY.pack(overlay.version, kind) + (overlay.value or b"")


def overlay_of(value: bytes) -> Overlay:
    """The overlay of a row's value."""
    version, kind = _OVERLAY.unpack_from(value)
    return Overlay(version, kind == _DELETED, value[_OVERLAY.size :] if kind == _VALUE else None)


def with_overlay(body: bytes, overlay: Overlay | None) -> bytes:
    """The body of an entry with its overlay; empty if it is deleted."""
    if overlay is None or not body:
        return body
    return b"" if overlay.deleted else body_with(body, overlay.version, overlay.value)


def edited_run(run: bytes, overlays: dict[int, Overlay]) -> bytes:
    """A run with the results of operations on its entries, by their offsets."""
    if is_installed():
        import duramen_native

        made = duramen_native.edited_run(run, overlays)
        if made is not None:
            return made
    return plain_edited_run(run, overlays)


def plain_edited_run(run: bytes, overlays: dict[int, Overlay]) -> bytes:
    """`edited_run` in plain Python."""
    old = Run(run)
    bodies = [(offset, with_overlay(body, overlays.get(offset))) for offset, body in old.bodies()]
    return next(runs(bodies, old.leader_epoch, _UNLIMITED))[1]


def overlays(rows: StateRows, queue: bytes, first: int, last: int) -> Iterator[tuple[int, Overlay]]:
    """The overlays of the entries between two offsets, in order."""
    for key, value in rows.scan(overlay_key(queue, first), overlay_key(queue, last + 1)):
        yield number_of(key), overlay_of(value)


def overlays_at(rows: StateRows, queue: bytes, offsets: Sequence[int]) -> Iterator[tuple[int, Overlay]]:
    """The overlays of the entries at these ascending offsets, and maybe of others between them."""
    if len(offsets) > _FEW:
        yield from overlays(rows, queue, offsets[0], offsets[-1])
        return
    found = rows.get_many([overlay_key(queue, offset) for offset in offsets])
    yield from ((offset, overlay_of(value)) for offset, value in zip(offsets, found, strict=True) if value is not None)


def runs_at(rows: StateRows, queue: bytes, offsets: Sequence[int]) -> Iterator[tuple[Run, Sequence[int]]]:
    """The runs that may have entries at these ascending offsets, each with those of the offsets up to its last one.

    Of a run that follows the one before, no row is searched.
    """
    found: Iterator[tuple[bytes, bytes]] = iter(())
    at = 0
    while at < len(offsets):
        row = next(found, None)
        if row is None or number_of(row[0]) < offsets[at]:
            found = rows.scan(run_key(queue, offsets[at]), queue_end(b"r", queue))
            row = next(found, None)
            if row is None:
                return
        run = Run(row[1])
        end = bisect_right(offsets, run.last, at)
        yield run, offsets[at:end]
        at = end


def state_of(rows: StateRows, queue: bytes) -> QueueState:
    """The state of a queue."""
    found = rows.get(state_key(queue))
    return EMPTY_STATE if found is None else state_value_of(found)


def state_value_of(value: bytes) -> QueueState:
    """The state of a row's value."""
    return _STATES.decode(value)


def state_value(state: QueueState) -> bytes:
    """A state as a row's value."""
    return msgspec.msgpack.encode(state)


def with_range(state: QueueState, new: HistoryRange) -> QueueState:
    """A state after a replace, whose record is after everything else."""
    start = new.start.offset
    kept = [one for one in state.ranges if one.start.offset < start]
    if kept and kept[-1].end >= new.start.offset:
        last = kept.pop()
        new = HistoryRange(last.start, new.end, new.by, new.reason)
    kept.append(new)
    while len(kept) > _MOST_RANGES:
        first, second = kept[:2]
        kept[:2] = [HistoryRange(first.start, second.end, second.by, second.reason)]
    done = tuple((first, min(last, start - 1)) for first, last in state.done if first < start)
    return state._replace(ranges=tuple(kept), done=done)


def position_value(position: Position) -> bytes:
    """A position as a row's value."""
    return _POSITION.pack(*position)


def position_of(rows: StateRows) -> Position:
    """The position of the view: the next offset, and the leader epoch of the record before."""
    found = rows.get(POSITION_KEY)
    return Position(0, 0) if found is None else Position(*_POSITION.unpack(found))


def epoch_of(rows: StateRows, offset: int, leader_epoch: int) -> bool:
    """Whether the record at that offset, which is applied, has that leader epoch."""
    found = rows.get(epoch_key(leader_epoch))
    if found is None or _U64.unpack(found)[0] > offset:
        return False
    following = next(rows.scan(epoch_key(leader_epoch + 1), b"f"), None)
    return following is None or offset < int(_U64.unpack(following[1])[0])
