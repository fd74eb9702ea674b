"""The positions of batches of the write-ahead log in a segment. Pure: batches in, positions out."""

from typing import NamedTuple

from duramen.base.ports import File

__all__ = ["RewriteBatch", "follow", "placed"]


class RewriteBatch(NamedTuple):
    """A batch in the WAL: its offsets, and the position of its bytes in `file`."""

    base_offset: int
    next_offset: int
    file: File
    place: int
    size: int


def follow(batches: list[RewriteBatch], batch: RewriteBatch) -> None:
    """Add the next batch of the WAL to those of its log; it replaces truncated ones."""
    while batches and batches[-1].next_offset > batch.base_offset:
        batches.pop()
    batches.append(batch)


def placed(
    batches: list[RewriteBatch], end_offset: int, size: int, start: int
) -> list[tuple[int, RewriteBatch]] | None:
    """The batches after the position `start` of a segment of `size` bytes, with their positions.

    `batches` are a log's, in the order of offsets, at least those from `start` on; `end_offset` is the end offset of
    the segment. None if they do not fit.
    """
    found: list[tuple[int, RewriteBatch]] = []
    for batch in reversed(batches):
        if size <= start:
            break
        if batch.next_offset <= end_offset:
            size -= batch.size
            found.append((size, batch))
    return found[::-1] if size == start else None
