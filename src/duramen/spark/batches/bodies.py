"""Whole record batches, parsed up to their headers: checked, decompressed, sorted into portions. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from duramen.base.ports import Buffer
from duramen.codec.batch import CONTROL, Header, batches, checked_body

__all__ = ["Body", "joined", "portions"]

_PORTION_BYTES: Final = 2 * 1024 * 1024
_LARGEST_PORTION_BYTES: Final = 1 << 30  # Arrow's offsets have 31 bits
_PORTION_RECORDS: Final = 16 * 1024


class Body(NamedTuple):
    """A batch's records: `data[position:end]`, decompressed."""

    head: Header
    data: Buffer
    position: int
    end: int


def portions(buffer: memoryview, first: int, end: int) -> Iterator[list[Body]]:
    """The batches in `buffer` that may have records with an offset in `[first, end)`, in portions.

    Raises BatchCorrupt for a batch that does not match its CRC or its header; control batches are left out.
    """
    portion: list[Body] = []
    held_bytes = held_records = 0
    for position, head in batches(buffer):
        if head.base_offset >= end:
            break
        if head.next_offset <= first:
            continue
        body = Body(head, *checked_body(buffer, position, head))
        if head.attributes & CONTROL or head.records == 0:
            continue
        size = body.end - body.position
        if portion and held_bytes + size > _LARGEST_PORTION_BYTES:
            yield portion
            portion, held_bytes, held_records = [], 0, 0
        portion.append(body)
        held_bytes += size
        held_records += head.records
        if held_bytes >= _PORTION_BYTES or held_records >= _PORTION_RECORDS:
            yield portion
            portion, held_bytes, held_records = [], 0, 0
    if portion:
        yield portion


def joined(bodies: Sequence[Body]) -> tuple[Buffer, list[Body]]:
    """The bodies in one buffer: their own if they share one, else a copy."""
    data = bodies[0].data
    if all(body.data is data for body in bodies):
        return data, list(bodies)
    data = b"".join(memoryview(body.data)[body.position : body.end] for body in bodies)
    moved, position = [], 0
    for body in bodies:
        size = body.end - body.position
        moved.append(Body(body.head, data, position, position + size))
        position += size
    return data, moved
