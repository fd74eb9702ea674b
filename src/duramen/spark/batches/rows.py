"""The start of each record: the only serial part of decoding, done for a run of equal lengths at a time. Pure.

Records follow one another, each after its length. If many have the same length, the positions of the next ones follow
from the first, and all their length prefixes are compared at once; a run ends at the first difference. If lengths vary
there are no runs, and a plain loop goes from length to length.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duramen.codec.varint import read_varint

__all__ = ["Bytes", "Odd", "Places", "read_varints", "record_starts"]

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]

_SHORTEST_RECORD: Final = 6  # bytes after the length: attributes, two deltas, two lengths, count of headers
_SHORTEST_RUN: Final = 16  # an array comparison costs as much as this many steps of the loop
_FIRST_LOOK: Final = 64
_LONGEST_PATIENCE: Final = 4096


class Odd(Exception):
    """These bytes do not look like a sound batch: the plain decoder must name the error."""


def record_starts(data: Bytes, spans: Sequence[tuple[int, int, int]]) -> Places:
    """The places of all records' length prefixes in `data`, for one span after another.

    A span is `(position, end, count)`: `count` records that fill `data[position:end]` exactly. Raises Odd.
    """
    if any(count * (_SHORTEST_RECORD + 1) > end - position or count < 0 for position, end, count in spans):
        raise Odd
    starts = np.empty(sum(count for _, _, count in spans), np.int64)
    found = 0
    patience = 0
    try:
        for position, end, count in spans:
            patience = _fill(data, position, end, starts[found : found + count], patience)
            found += count
    except (IndexError, ValueError):
        raise Odd from None
    return starts


def _fill(data: Bytes, position: int, end: int, starts: Places, patience: int) -> int:
    """Fill `starts` from one span.

    `patience` is the number of records to walk before looking for a run; returns the new one.
    """
    found, count = 0, len(starts)
    while found < count:
        if patience or count - found <= _SHORTEST_RUN:
            step = min(patience or count, count - found)
            position = _walk(data, position, end, starts[found : found + step])
            found += step
        if count - found > _SHORTEST_RUN:
            run, stride = _run(data, position, end, count - found)
            starts[found : found + run] = np.arange(position, position + run * stride, stride)
            found += run
            position += run * stride
            short = run < _SHORTEST_RUN
            patience = min(max(2 * patience, _SHORTEST_RUN), _LONGEST_PATIENCE) if short else 0
    if position != end:
        raise Odd
    return patience


def _run(data: Bytes, position: int, end: int, most: int) -> tuple[int, int]:
    """The number of records from `position` on that have the length of the first, and their distance in bytes."""
    length, prefix = read_varint(data[position : position + 10].tobytes(), 0)
    stride = prefix + length
    if length < _SHORTEST_RECORD or position + stride > end:
        raise Odd
    room = min(most, (end - position) // stride)
    known, look = 1, _FIRST_LOOK
    while known < room:
        until = min(room, known + look)
        first, last = position + known * stride, position + (until - 1) * stride
        same = data[first : last + 1 : stride] == data[position]
        for more in range(1, prefix):
            same &= data[first + more : last + more + 1 : stride] == data[position + more]
        if not same.all():
            return known + int(same.argmin()), stride
        known, look = until, 8 * look
    return known, stride


def _walk(data: Bytes, position: int, end: int, starts: Places) -> int:
    """Fill `starts` record by record; returns the start of the next one. Raises IndexError, ValueError or Odd."""
    found = []
    # A record takes 7 bytes and usually far less than 256: about as much is copied as is read.
    raw: bytes = b""
    origin = limit = position
    for _ in range(len(starts)):
        if position + 10 > limit:
            origin, limit = position, min(end, position + 256 * len(starts) + 10)
            raw = data[origin:limit].tobytes()
        found.append(position)
        at = position - origin
        byte = raw[at]
        if byte < 0x80:
            length, position = byte >> 1, position + 1
        else:
            second = raw[at + 1]
            if second < 0x80:
                length, position = (byte & 0x7F | second << 7) >> 1, position + 2
            else:
                length, at = read_varint(raw, at)
                byte, position = length < 0, origin + at
        position += length
        if byte & 1 or length < _SHORTEST_RECORD or position > end:
            raise Odd
    starts[:] = found
    return position


def read_varints(data: Bytes, at: Places) -> tuple[Places, Places]:
    """A zigzag varint at each place of `at`: their values, and the places after them.

    Raises Odd for one of more than nine bytes, and IndexError for one that is cut off by the end of the data.
    """
    byte = data[at]
    after = at + 1
    values: Places = byte.astype(np.int64)
    longer = np.flatnonzero(byte >= 0x80)
    if longer.size:
        values &= 0x7F
    shift = 7
    while longer.size:
        if shift > 56:
            raise Odd
        if longer.size == at.size:
            byte = data[after]
            values |= (byte & 0x7F).astype(np.int64) << shift
            after += 1
            longer = np.flatnonzero(byte >= 0x80)
        else:
            byte = data[after[longer]]
            values[longer] |= (byte & 0x7F).astype(np.int64) << shift
            after[longer] += 1
            longer = longer[byte >= 0x80]
        shift += 7
    return (values >> 1) ^ -(values & 1), after
