"""The rows of a shard's view. Pure.

    n, hash                     the queue's name
    r, hash, uint64 offset      a run of entries, by the offset of its last one
    o, hash, uint64 offset      what an operation made of the entry there, which lies in a run: uint64 offset of the
                                operation, uint8 1 and the new value, 0: it is null; or -1: the entry is deleted
    s, hash                     the head, and what was taken back
    e, uint32 leader epoch      uint64 offset of the first record of a leader epoch
    p                           uint32 leader epoch, uint64 offset: of the next record that is not applied

Keys are big-endian. A run has its last offset for a key, so that one seek finds the run of any offset.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from duramen.base.ids import Position
from duramen.base.ports import StateRows
from duramen.queues.runs import body_with

__all__ = [
    "EMPTY_STATE",
    "POSITION_KEY",
    "HistoryRange",
    "Overlay",
    "Queue",
    "QueueState",
    "epoch_key",
    "epoch_of",
    "name_key",
    "number_of",
    "overlay_key",
    "overlay_of",
    "overlay_value",
    "overlays",
    "position_of",
    "position_value",
    "queue_end",
    "run_key",
    "state_key",
    "state_of",
    "state_value",
    "with_overlay",
    "with_range",
]

POSITION_KEY: Final = b"p"
_U64: Final = struct.Struct(">Q")
_U32: Final = struct.Struct(">I")
_POSITION: Final = struct.Struct(">IQ")
_OVERLAY: Final = struct.Struct(">Qb")
_DELETED, _NULL, _VALUE = -1, 0, 1
_MOST_RANGES: Final = 100


class Queue(NamedTuple):
    """A queue by its name, and the hash of that."""

    name: bytes
    hash: bytes


class HistoryRange(NamedTuple):
    """What lay from `start` up to the offset `end`, that of the replace record, was taken back."""

    start: Position
    end: int
    by: str
    reason: str


class QueueState(NamedTuple):
    """No entry lies before `head`; what was taken back, in the order of offsets."""

    head: int
    ranges: tuple[HistoryRange, ...]

    def rewritten(self, offset: int) -> HistoryRange | None:
        """The range that a reader who goes on at this offset has read something of."""
        return next((one for one in self.ranges if one.start.offset < offset <= one.end), None)

    def taken_back(self, offset: int) -> HistoryRange | None:
        """The range that the entry at this offset was taken back with."""
        return next((one for one in self.ranges if one.start.offset <= offset <= one.end), None)


class Overlay(NamedTuple):
    """What the newest operation made of an entry."""

    version: int
    deleted: bool
    value: bytes | None


EMPTY_STATE: Final = QueueState(0, ())
_STATES: Final = msgspec.msgpack.Decoder(QueueState)


def name_key(queue: bytes) -> bytes:
    """The key of the row with the name of a queue, which is its hash here as everywhere below."""
    return b"n" + queue


def run_key(queue: bytes, last: int) -> bytes:
    """The key of the run that ends at that offset; behind it is every run with an entry at that offset or later."""
    return b"r" + queue + _U64.pack(last)


def overlay_key(queue: bytes, offset: int) -> bytes:
    """The key of what was made of the entry at that offset."""
    return b"o" + queue + _U64.pack(offset)


def queue_end(kind: bytes, queue: bytes) -> bytes:
    """Behind all runs (r) or all overlays (o) of a queue."""
    return kind + queue + b"\xff" * 9


def state_key(queue: bytes) -> bytes:
    """The key of the state of a queue."""
    return b"s" + queue


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
    """The overlay that a row's value is."""
    version, kind = _OVERLAY.unpack_from(value)
    return Overlay(version, kind == _DELETED, value[_OVERLAY.size :] if kind == _VALUE else None)


def with_overlay(body: bytes, overlay: Overlay | None) -> bytes:
    """The body of an entry with what was made of it; empty where it is deleted."""
    if overlay is None or not body:
        return body
    return b"" if overlay.deleted else body_with(body, overlay.version, overlay.value)


def overlays(rows: StateRows, queue: bytes, first: int, last: int) -> Iterator[tuple[int, Overlay]]:
    """What was made of the entries from one offset to another one, in their order."""
    for key, value in rows.scan(overlay_key(queue, first), overlay_key(queue, last + 1)):
        yield number_of(key), overlay_of(value)


def state_of(rows: StateRows, queue: bytes) -> QueueState:
    """The state of a queue."""
    found = rows.get(state_key(queue))
    return EMPTY_STATE if found is None else _STATES.decode(found)


def state_value(state: QueueState) -> bytes:
    """A state as a row's value."""
    return msgspec.msgpack.encode(state)


def with_range(state: QueueState, new: HistoryRange) -> QueueState:
    """A state after a replace, whose record lies behind all that is there."""
    kept = [one for one in state.ranges if one.start.offset < new.start.offset]
    if kept and kept[-1].end >= new.start.offset:
        last = kept.pop()
        new = HistoryRange(last.start, new.end, new.by, new.reason)
    kept.append(new)
    while len(kept) > _MOST_RANGES:
        first, second = kept[:2]
        kept[:2] = [HistoryRange(first.start, second.end, second.by, second.reason)]
    return state._replace(ranges=tuple(kept))


def position_value(position: Position) -> bytes:
    """A position as a row's value."""
    return _POSITION.pack(*position)


def position_of(rows: StateRows) -> Position:
    """Up to where the view is: the next offset, and the leader epoch of the record before."""
    found = rows.get(POSITION_KEY)
    return Position(0, 0) if found is None else Position(*_POSITION.unpack(found))


def epoch_of(rows: StateRows, offset: int, leader_epoch: int) -> bool:
    """Whether the record at that offset, which is applied, is of that leader epoch."""
    found = rows.get(epoch_key(leader_epoch))
    if found is None or _U64.unpack(found)[0] > offset:
        return False
    following = next(rows.scan(epoch_key(leader_epoch + 1), b"f"), None)
    return following is None or offset < int(_U64.unpack(following[1])[0])
