"""Frames of the write-ahead log: their bytes, and finding them again in a file that may be torn or damaged.

A frame, big-endian:

     0  uint32  CRC-32C            of everything after this field, seeded with the CRC of the directory's id
     4  uint32  size               of the payload
     8  uint32  generation         of the file: grows with each use of a file, so that old frames of a recycled file
                                   are never mistaken for new ones
    12  uint32  place              of this frame in its file, so that a frame at another place is detected
    16  uint64  vouched            the WAL position known to be synced when this frame was written
    24  uint8   type
    25  uint64  log id             0 if the frame belongs to no log
    33  …       payload

A *WAL position* is `generation << 32 | place`: one integer that orders all frames ever written.
Pure functions on bytes; `scan` and `walk` alone read a file.
"""

import errno
import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from duramen.base.ports import Buffer, File
from duramen.codec.crc import crc32c

__all__ = [
    "FRAME_HEADER_BYTES",
    "Bad",
    "Frame",
    "FrameType",
    "encode",
    "encode_all",
    "find_generation",
    "position",
    "scan",
    "walk",
]

FRAME_HEADER_BYTES: Final = 33

_WINDOW_BYTES: Final = 1024 * 1024

_HEADER = struct.Struct(">IIIIQBQ")
_CRC = struct.Struct(">I")
_COVERED = struct.Struct(">IIIQBQ")
_MARK = struct.Struct(">II")
_MARK_AT: Final = 8  # the place of a frame's generation and place


class FrameType(IntEnum):
    """Frame types; the payloads are in docs/storage-format.md."""

    FILE = 1
    APPEND = 2
    TRUNCATE = 3
    TAKEOVER = 4
    LOG_CREATED = 5
    LOG_DELETED = 6
    CHECKPOINT_ENTRY = 7
    ROLL = 8
    PRODUCERS_FORGOTTEN = 9


class Frame(NamedTuple):
    """A sound frame in a file."""

    generation: int
    place: int
    vouched: int
    type: FrameType
    log_id: int
    payload: memoryview

    @property
    def end(self) -> int:
        """The place after it."""
        return self.place + FRAME_HEADER_BYTES + len(self.payload)


class Bad(NamedTuple):
    """A range of a file without a sound frame of its generation, between two sound ones or at the end."""

    place: int
    end: int


def position(generation: int, place: int) -> int:
    """The WAL position of a place in the file of a generation."""
    return generation << 32 | place


def encode(type_: int, log_id: int, payload: Buffer, generation: int, place: int, vouched: int, salt: int) -> bytes:
    """The header of a frame; the payload is written after it."""
    covered = _COVERED.pack(len(payload), generation, place, vouched, type_, log_id)
    return _CRC.pack(crc32c(payload, crc32c(covered, salt))) + covered


def encode_all(
    type_: int, log_id: int, payloads: Iterable[Buffer], generation: int, place: int, vouched: int, salt: int
) -> tuple[list[Buffer], int]:
    """Frames from `place` on, as `encode` makes them, with their payloads; and the place after them."""
    frames: list[Buffer] = []
    for payload in payloads:
        size = len(payload)
        covered = _COVERED.pack(size, generation, place, vouched, type_, log_id)
        frames += (_CRC.pack(crc32c(payload, crc32c(covered, salt))) + covered, payload)
        place += FRAME_HEADER_BYTES + size
    return frames, place


def _decode(buffer: memoryview, place: int, generation: int, salt: int, origin: int = 0) -> Frame | None:
    at = place - origin
    if at + FRAME_HEADER_BYTES > len(buffer):
        return None
    crc, size, found_generation, found_place, vouched, type_, log_id = _HEADER.unpack_from(buffer, at)
    end = at + FRAME_HEADER_BYTES + size
    if found_generation != generation or found_place != place or end > len(buffer):
        return None
    if crc32c(buffer[at + 4 : end], salt) != crc:
        return None
    try:
        known = FrameType(type_)
    except ValueError:
        return None
    return Frame(generation, place, vouched, known, log_id, buffer[at + FRAME_HEADER_BYTES : end])


class _Windows:
    """A file read in windows, so that a large one is never completely in memory."""

    def __init__(self, file: File, end: int, window_bytes: int) -> None:
        self._file = file
        self._window_bytes = window_bytes
        self._origin = 0
        self._window = memoryview(b"")
        self.end = end

    def at(self, place: int, size: int) -> memoryview:
        """`size` bytes at `place`; fewer at the end of the file."""
        size = min(size, self.end - place)
        if not self._origin <= place <= place + size <= self._origin + len(self._window):
            self._origin = place
            self._window = memoryview(self._file.read(place, min(max(size, self._window_bytes), self.end - place)))
        return self._window[place - self._origin : place - self._origin + size]

    def frame(self, place: int, generation: int, salt: int) -> Frame | None:
        """The sound frame at `place`."""
        head = self.at(place, FRAME_HEADER_BYTES)
        if len(head) < FRAME_HEADER_BYTES:
            return None
        _, payload_bytes, found_generation, found_place, *_ = _HEADER.unpack(head)
        size = FRAME_HEADER_BYTES + payload_bytes
        # Checked before the payload is read: bytes of records may look like any size.
        if found_generation != generation or found_place != place or place + size > self.end:
            return None
        return _decode(self.at(place, size), place, generation, salt, place)


def scan(
    file: File, generation: int, salt: int, *, start: int = 0, end: int | None = None, window_bytes: int = _WINDOW_BYTES
) -> Iterator[Frame | Bad]:
    """The frames and bad ranges of a WAL file of that generation from `start`, a frame's place, to `end`, in order.

    Ends with the last sound frame or one Bad; a Bad that reaches to the end of the file is the unused rest, a torn
    tail, or both. Blocking: reads `window_bytes` or a frame at once. Raises OSError.
    """
    windows = _Windows(file, file.size() if end is None else min(end, file.size()), window_bytes)
    place = start
    while place < windows.end:
        frame = windows.frame(place, generation, salt)
        if frame is not None:
            yield frame
            place = frame.end
            continue
        following = _next_sound(file, windows, place + 1, generation, salt, window_bytes)
        yield Bad(place, windows.end if following is None else following)
        if following is None:
            return
        place = following


def walk(file: File, generation: int, start: int, end: int, salt: int) -> Iterator[Frame]:
    """The frames of a WAL file from `start`, a frame's place, to `end`, the place after another, all of them sound.

    Reads about 1 MiB at once. Blocking. Raises OSError, also if a frame is not sound.
    """
    place = origin = start
    view = memoryview(b"")
    while place < end:
        frame = _decode(view, place, generation, salt, origin)
        if frame is None:
            size = _HEADER.unpack(head)[1] if len(head := file.read(place, FRAME_HEADER_BYTES)) == _HEADER.size else 0
            view = memoryview(file.read(place, min(max(FRAME_HEADER_BYTES + size, _WINDOW_BYTES), end - place)))
            origin = place
            frame = _decode(view, place, generation, salt, origin)
        if frame is None:
            raise OSError(errno.EIO, f"generation {generation} of the write-ahead log has no sound frame at {place}")
        yield frame
        place = frame.end


def _next_sound(file: File, windows: _Windows, first: int, generation: int, salt: int, window_bytes: int) -> int | None:
    mark = generation.to_bytes(4, "big")
    zeros = bytes(window_bytes + _MARK.size - 1)
    searched = first + _MARK_AT
    while searched + _MARK.size <= windows.end:
        data = bytes(file.read(searched, min(len(zeros), windows.end - searched)))
        # Most of the searched bytes are unused zeros: comparing with zeros is much faster than searching for the mark.
        at, last = -1 if data == zeros else data.find(mark), len(data) - _MARK.size
        while 0 <= at <= last:
            place = searched + at - _MARK_AT
            # Records may have the generation millions of times, as keys of big-endian integers do, but not its place.
            if _MARK.unpack_from(data, at)[1] == place and windows.frame(place, generation, salt) is not None:
                return place
            at = data.find(mark, at + 1)
        searched += window_bytes
    return None


def find_generation(buffer: Buffer, salt: int) -> int | None:
    """The generation of a WAL file from its first frame; None if that frame is not sound."""
    view = memoryview(buffer)
    if len(view) < FRAME_HEADER_BYTES:
        return None
    generation: int = _HEADER.unpack_from(view)[2]
    frame = _decode(view, 0, generation, salt)
    return generation if frame is not None and frame.type is FrameType.FILE else None
