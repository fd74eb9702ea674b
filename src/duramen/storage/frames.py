"""Frames of the write-ahead log: their bytes, and finding them again in a file that may be torn or damaged.

A frame, big-endian:

     0  uint32  CRC-32C            of everything after this field, begun with the CRC of the directory's id
     4  uint32  size               of the payload
     8  uint32  generation         of the file: grows each time a file is taken into use, so that the frames a
                                   recycled file held before are never taken for new
    12  uint32  place              of this frame in its file, so that no frame is taken for another's place
    16  uint64  vouched            the WAL position known to be synced when this frame was written
    24  uint8   type
    25  uint64  log id             0 where the frame is about no log
    33  …       payload

A *WAL position* is `generation << 32 | place`: one integer that orders all frames ever written.
Pure functions on bytes; `walk` alone reads a file.
"""

import errno
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from duramen.base.ports import Buffer, File
from duramen.codec.crc import crc32c

__all__ = ["FRAME_HEADER_BYTES", "Bad", "Frame", "FrameType", "encode", "find_generation", "position", "scan", "walk"]

FRAME_HEADER_BYTES: Final = 33

_WINDOW_BYTES: Final = 1024 * 1024

_HEADER = struct.Struct(">IIIIQBQ")
_CRC = struct.Struct(">I")
_COVERED = struct.Struct(">IIIQBQ")


class FrameType(IntEnum):
    """What a frame says; the payloads are in docs/storage-format.md."""

    FILE = 1
    APPEND = 2
    TRUNCATE = 3
    TAKEOVER = 4
    LOG_CREATED = 5
    LOG_DELETED = 6
    CHECKPOINT_ENTRY = 7
    ROLL = 8


class Frame(NamedTuple):
    """A sound frame as found in a file."""

    generation: int
    place: int
    vouched: int
    type: FrameType
    log_id: int
    payload: memoryview

    @property
    def end(self) -> int:
        """The place of what follows."""
        return self.place + FRAME_HEADER_BYTES + len(self.payload)


class Bad(NamedTuple):
    """A range of a file that holds no sound frame of its generation, between two that are sound or at the end."""

    place: int
    end: int


def position(generation: int, place: int) -> int:
    """The WAL position of a place in the file of a generation."""
    return generation << 32 | place


def encode(type_: int, log_id: int, payload: Buffer, generation: int, place: int, vouched: int, salt: int) -> bytes:
    """The header of a frame; the payload is written behind it."""
    covered = _COVERED.pack(len(payload), generation, place, vouched, type_, log_id)
    return _CRC.pack(crc32c(payload, crc32c(covered, salt))) + covered


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


def scan(buffer: Buffer, generation: int, salt: int) -> Iterator[Frame | Bad]:
    """What a WAL file of that generation holds, in order of place; ends with the last sound frame or one Bad.

    A Bad at the end that reaches to the end of the file is the unused rest, a torn tail, or both.
    """
    view = memoryview(buffer)
    mark = generation.to_bytes(4, "big")
    place = 0
    while place < len(view):
        frame = _decode(view, place, generation, salt)
        if frame is not None:
            yield frame
            place = frame.end
            continue
        following = _next_sound(buffer, view, place + 1, mark, generation, salt)
        yield Bad(place, len(view) if following is None else following)
        if following is None:
            return
        place = following


def walk(file: File, generation: int, start: int, end: int, salt: int) -> Iterator[Frame]:
    """The frames of a WAL file from the place `start` of one to the place `end` after another, all of them sound.

    Reads about 1 MiB at once. Blocking. Raises OSError, also where there is no sound frame.
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


def _next_sound(buffer: Buffer, view: memoryview, first: int, mark: bytes, generation: int, salt: int) -> int | None:
    haystack = buffer if isinstance(buffer, bytes | bytearray) else bytes(buffer)
    at = first + 8
    while (at := haystack.find(mark, at)) >= 0:
        place = at - 8
        if view[at + 4 : at + 8] == place.to_bytes(4, "big") and _decode(view, place, generation, salt) is not None:
            return place
        at += 1
    return None


def find_generation(buffer: Buffer, salt: int) -> int | None:
    """The generation of a WAL file from its first frame; None where that frame is not sound."""
    view = memoryview(buffer)
    if len(view) < FRAME_HEADER_BYTES:
        return None
    generation: int = _HEADER.unpack_from(view)[2]
    frame = _decode(view, 0, generation, salt)
    return generation if frame is not None and frame.type is FrameType.FILE else None
