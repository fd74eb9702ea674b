"""Splits bytes of a segment into batches, sound or not; after invalid bytes it searches for the next batch. Pure."""

import re
from typing import Final, NamedTuple

from duramen.codec.batch import CRC_START, HEADER_BYTES, LENGTH_END, Header, header
from duramen.codec.crc import crc32c
from duramen.storage.segment.damage import DamageCause

__all__ = ["UNCOVERED", "ByteSpan", "spans_of"]

UNCOVERED: Final = (*range(8), *range(LENGTH_END, LENGTH_END + 4))
"""The bytes that a batch's own CRC does not cover: base offset and leader epoch."""

_MAGIC: Final = 2
_LARGEST_BYTES: Final = 64 * 1024 * 1024  # larger ones that do not end within reach are searched for other batches
# Base offset below 2^56, a non-negative length, the magic, and attributes with an unused upper byte.
_LOOKS_LIKE_ONE: Final = re.compile(rb"(?=\0.{7}[\0-\x7f].{7}\x02.{4}\0)", re.DOTALL)


class ByteSpan(NamedTuple):
    """Bytes `start` to `end` (positions in the segment): one batch, or damaged bytes up to the next batch.

    `cause` is None for a batch that matches its CRC; else `head` is the header there, None if it is invalid.
    """

    start: int
    end: int
    head: Header | None
    cause: DamageCause | None


def spans_of(data: memoryview, origin: int, *, whole: bool) -> tuple[list[ByteSpan], int]:
    """The spans of bytes that start with a batch at the position `origin`, and their end position.

    `whole`: the bytes end with a batch. Else a batch that is cut off at the end is left out.
    """
    spans: list[ByteSpan] = []
    at, size = 0, len(data)
    while at < size:
        head = _head(data, at)
        end = at + head.size if head is not None else size + 1
        if head is not None and end <= size and _is_sound(data, at, head):
            spans.append(ByteSpan(origin + at, origin + end, head, None))
            at = end
            continue
        if not whole and head is not None and end > size and head.size <= _LARGEST_BYTES:
            break
        following = _following(data, at, head, whole=whole)
        if following is None and not whole and size - at < HEADER_BYTES:
            break
        stop = size if following is None else following
        cause = DamageCause.BATCH_CRC if head is not None and end == stop else DamageCause.HEADER
        spans.append(ByteSpan(origin + at, origin + stop, head, cause))
        at = stop
    return spans, origin + at


def _head(data: memoryview, at: int) -> Header | None:
    """The header at a place; None if it cannot be one."""
    if at + HEADER_BYTES > len(data):
        return None
    found = header(data, at)
    return found if found.magic == _MAGIC and found.size >= HEADER_BYTES and found.base_offset >= 0 else None


def _is_sound(data: memoryview, at: int, head: Header) -> bool:
    return crc32c(data[at + CRC_START : at + head.size]) == head.crc and head.last_offset_delta >= 0


def _following(data: memoryview, at: int, head: Header | None, *, whole: bool) -> int | None:
    """The start of the next sound batch after a damaged one; None without one."""
    end = at + head.size if head is not None else 0
    following = _head(data, end) if head is not None else None
    if head is None or following is None or end + following.size > len(data) or not _is_sound(data, end, following):
        return _next_start(data, at + 1, whole=whole)
    if following.base_offset < head.next_offset:
        return _next_start(data, at + 1, whole=whole)
    if following.base_offset == head.next_offset:
        return end
    # Compaction may have left a gap; or its own length is wrong, and skips others.
    inner = _next_start(data[:end], at + 1, whole=True)
    return end if inner is None else inner


def _next_start(data: memoryview, first: int, *, whole: bool) -> int | None:
    """The start of the next sound batch that others follow up to the end of the bytes.

    A batch stored in a record is sound too, but the bytes after it are not.
    """
    for found in _LOOKS_LIKE_ONE.finditer(data, first):
        at = found.start()
        head = _head(data, at)
        if head is None or at + head.size > len(data) or not _is_sound(data, at, head):
            continue
        if _others_follow(data, at, whole=whole):
            return at
    return None


def _others_follow(data: memoryview, at: int, *, whole: bool) -> bool:
    size = len(data)
    while at < size:
        if size - at < HEADER_BYTES:
            return not whole
        head = _head(data, at)
        if head is None:
            return False
        at += head.size
    return at == size or not whole
