"""Runs: adjacent entries of a queue in its view, and their encoding. Pure.

    run    int64 offset of the first entry, int32 leader epoch, uint32 count, uint32 for each entry: its offset less the
           first, uint32 for each: the end of its body, bodies; an empty one is that of a deleted entry
    body   uint8 flags, int64 timestamp, then what the flags say is there: uint64 version, uint32 size and key, uint32
           count and headers (uint32 size and name, int32 size and value, -1: null), int64 when it is shown, int64
           when it expires, the value, which takes the rest

All numbers are little-endian. An entry without a version was never edited; its version is its offset's.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from duramen.base.ids import Position
from duramen.codec.exports import Headers, headers_at

__all__ = [
    "ENTRY_OVERHEAD_BYTES",
    "RUN_BYTES",
    "Body",
    "QueueEntry",
    "Run",
    "body_of",
    "body_with",
    "body_without_times",
    "entry_of",
    "has_entries",
    "leader_epoch_of",
    "plain_run_size",
    "runs",
    "single_run",
    "sizes_of",
    "timestamp_of",
]  # fmt: skip

RUN_BYTES: Final = 16 << 10
"""The largest size of a run's bodies, unless it has a single entry."""

ENTRY_OVERHEAD_BYTES: Final = 64
"""What an entry counts besides its key, value and headers."""

_RUN: Final = struct.Struct("<qiI")
_SINGLE: Final = struct.Struct("<qiIII")
_BODY: Final = struct.Struct("<Bq")
_U32: Final = struct.Struct("<I")
_I32: Final = struct.Struct("<i")
_U64: Final = struct.Struct("<Q")
_I64: Final = struct.Struct("<q")
_FURTHEST: Final = (1 << 32) - 1
_ANY_TIME: Final = 0, 0
_VALUE, _KEY, _HEADERS, _VERSION, _VISIBLE, _EXPIRES = 1, 2, 4, 8, 16, 32

Body = tuple[int, bytes]
"""An offset and the body of its entry."""


class QueueEntry(NamedTuple):
    """The present state of an entry. `version` is the offset of the newest operation on it, its own without one.

    `visible_ms` is when it is shown, `expires_ms` when it expires; 0: at once, and never.
    """

    position: Position
    version: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    visible_ms: int = 0
    expires_ms: int = 0

    def expired(self, now_ms: int) -> bool:
        """Whether it has expired."""
        return 0 < self.expires_ms <= now_ms


def body_of(
    timestamp: int, value: bytes | None, key: bytes | None = None,
    headers: Sequence[tuple[bytes, bytes | None]] = (), times: tuple[int, int] = _ANY_TIME,
) -> bytes:  # fmt: skip
    """The body of a new entry; `times` are when it is shown and when it expires."""
    if key is not None or headers or times != _ANY_TIME:
        return _body(timestamp, None, key, value, headers, times)
    return _BODY.pack(0 if value is None else _VALUE, timestamp) + (value or b"")


def _body(
    timestamp: int, version: int | None, key: bytes | None, value: bytes | None,
    headers: Sequence[tuple[bytes, bytes | None]], times: tuple[int, int],
) -> bytes:  # fmt: skip
    flags = (value is not None) * _VALUE | (key is not None) * _KEY | bool(headers) * _HEADERS
    flags |= bool(times[0]) * _VISIBLE | bool(times[1]) * _EXPIRES
    parts = [_BODY.pack(flags | (version is not None) * _VERSION, timestamp)]
    if version is not None:
        parts.append(_U64.pack(version))
    if key is not None:
        parts += (_U32.pack(len(key)), key)
    if headers:
        parts.append(_U32.pack(len(headers)))
        for name, content in headers:
            parts += (_U32.pack(len(name)), name, _I32.pack(-1 if content is None else len(content)), content or b"")
    parts += (_I64.pack(time_ms) for time_ms in times if time_ms)
    parts.append(value or b"")
    return b"".join(parts)


def entry_of(position: Position, body: bytes) -> QueueEntry:
    """An entry with a non-empty body."""
    flags, timestamp = _BODY.unpack_from(body)
    at, version, key = _BODY.size, position.offset, None
    headers: Headers = ()
    if flags & _VERSION:
        version = _U64.unpack_from(body, at)[0]
        at += 8
    if flags & _KEY:
        size = _U32.unpack_from(body, at)[0]
        key = body[at + 4 : at + 4 + size]
        at += 4 + size
    if flags & _HEADERS:
        headers, at = headers_at(body, at)
    visible_ms = expires_ms = 0
    if flags & _VISIBLE:
        visible_ms = _I64.unpack_from(body, at)[0]
        at += 8
    if flags & _EXPIRES:
        expires_ms = _I64.unpack_from(body, at)[0]
        at += 8
    value = body[at:] if flags & _VALUE else None
    return QueueEntry(position, version, timestamp, key, value, headers, visible_ms, expires_ms)


def body_with(body: bytes, version: int, value: bytes | None) -> bytes:
    """A body with a new value, by an operation at the offset `version`."""
    old = entry_of(Position(0, 0), body)
    return _body(old.timestamp, version, old.key, value, old.headers, (old.visible_ms, old.expires_ms))


def body_without_times(body: bytes) -> bytes:
    """The body of an entry without delay and expiry."""
    if not body[0] & (_VISIBLE | _EXPIRES):
        return body
    old = entry_of(Position(0, 0), body)
    version = old.version if body[0] & _VERSION else None
    return _body(old.timestamp, version, old.key, old.value, old.headers, _ANY_TIME)


def timestamp_of(body: bytes) -> int:
    """When an entry with a non-empty body was written."""
    found: int = _BODY.unpack_from(body)[1]
    return found


def sizes_of(body: bytes) -> tuple[int, int]:
    """The size of an entry with a non-empty body without its value, as `entry_size` counts, and that of its value."""
    flags = body[0]
    if flags <= _VALUE:
        return ENTRY_OVERHEAD_BYTES, len(body) - _BODY.size
    fixed, at = ENTRY_OVERHEAD_BYTES, _BODY.size + 8 * bool(flags & _VERSION)
    if flags & _KEY:
        size: int = _U32.unpack_from(body, at)[0]
        fixed, at = fixed + size, at + 4 + size
    if flags & _HEADERS:
        headers, at = headers_at(body, at)
        fixed += sum(len(name) + len(value or b"") for name, value in headers)
    return fixed, len(body) - at - 8 * bool(flags & _VISIBLE) - 8 * bool(flags & _EXPIRES)


def plain_run_size(run: bytes) -> tuple[int, int]:
    """The number of the entries of a run without deleted ones, keys, headers and times, and their size."""
    count: int = _RUN.unpack_from(run)[2]
    return count, len(run) - _RUN.size + count * (ENTRY_OVERHEAD_BYTES - _BODY.size - 8)


def leader_epoch_of(run: bytes) -> int:
    """The leader epoch of the entries of a run."""
    found: int = _RUN.unpack_from(run)[1]
    return found


def has_entries(run: bytes) -> bool:
    """Whether a run has an entry that was not deleted."""
    count: int = _RUN.unpack_from(run)[2]
    return len(run) > _RUN.size + 8 * count


class Run:
    """A decoded run; bodies are sliced on demand."""

    __slots__ = ("_base", "_ends", "data", "first", "leader_epoch", "offsets")

    def __init__(self, data: bytes) -> None:
        self.first, self.leader_epoch, count = _RUN.unpack_from(data)
        numbers = struct.unpack_from(f"<{2 * count}I", data, _RUN.size)
        first = self.first
        self.offsets: list[int] = [first + number for number in numbers[:count]]
        self._ends = (0, *numbers[count:])
        self._base = _RUN.size + 8 * count
        self.data = data

    @property
    def last(self) -> int:
        """The offset of the last entry."""
        return self.offsets[-1]

    def index(self, offset: int) -> int:
        """The index of the entry at an offset; -1 if there is none, or it was deleted when the run was written."""
        place = bisect_left(self.offsets, offset)
        if place == len(self.offsets) or self.offsets[place] != offset or self._ends[place] == self._ends[place + 1]:
            return -1
        return place

    def lasting_version(self, index: int) -> int | None:
        """The version of an entry with a body; None if the entry may expire."""
        at = self._base + self._ends[index]
        flags = self.data[at]
        if flags & _EXPIRES:
            return None
        return _U64.unpack_from(self.data, at + _BODY.size)[0] if flags & _VERSION else self.offsets[index]

    def body(self, index: int) -> bytes:
        """The body of an entry by its index."""
        return self.data[self._base + self._ends[index] : self._base + self._ends[index + 1]]

    def bodies(self, start: int = 0) -> Iterator[Body]:
        """Offsets and bodies of the entries from that index on."""
        for index in range(start, len(self.offsets)):
            yield self.offsets[index], self.body(index)


def runs(bodies: Iterable[Body], leader_epoch: int, limit_bytes: int = RUN_BYTES) -> Iterator[tuple[int, bytes]]:
    """The last offset and the bytes of each run of these entries, in order."""
    some, size = list[Body](), 0
    for one in bodies:
        if some and (size + len(one[1]) > limit_bytes or one[0] - some[0][0] > _FURTHEST):
            yield some[-1][0], _encoded(some, leader_epoch)
            some, size = [], 0
        some.append(one)
        size += len(one[1])
    if some:
        yield some[-1][0], _encoded(some, leader_epoch)


def single_run(offset: int, body: bytes, leader_epoch: int) -> tuple[int, bytes]:
    """The run of one entry."""
    return offset, _SINGLE.pack(offset, leader_epoch, 1, 0, len(body)) + body


def _encoded(some: list[Body], leader_epoch: int) -> bytes:
    first, count = some[0][0], len(some)
    if count == 1:
        return single_run(*some[0], leader_epoch)[1]
    ends, end = list[int](), 0
    for _, body in some:
        end += len(body)
        ends.append(end)
    numbers = struct.pack(f"<{2 * count}I", *(offset - first for offset, _ in some), *ends)
    return b"".join((_RUN.pack(first, leader_epoch, count), numbers, *(body for _, body in some)))
