"""Truncates a log's last segment at a place that its index has; reads one block.

This suffices if there are no known idempotent producers. Otherwise the whole segment is read, because the producers'
state depends on the remaining batches. A placeholder for missing records, which makes producers unknown, starts a
segment, so that a truncation removes it entirely or not at all.
"""

from typing import NamedTuple

from duramen.base.ports import File, FileSystem
from duramen.codec.crc import crc32c
from duramen.storage.log.log import Log
from duramen.storage.log.producers import ProducerTable
from duramen.storage.log.transactions import TransactionTable
from duramen.storage.segment.checks import read_index
from duramen.storage.segment.index import BLOCK_BYTES, BLOCK_SHIFT, SegmentIndex, cover
from duramen.storage.segment.reader import walk_batches
from duramen.storage.segment.segment import Segment
from duramen.storage.truncation.cuts import TruncatedLog, cut_files, end_of_cut, truncate

__all__ = ["TailSegment", "cut_ending", "end_of_ending", "ending_of"]


class TailSegment(NamedTuple):
    """The last segment of a log to be truncated to `end_offset`, and a copy of its index."""

    segment: Segment
    blocks: SegmentIndex
    end_offset: int


class _Spot(NamedTuple):
    """The position of the first removed batch, the new end offset of the log, and the largest timestamp before it."""

    position: int
    end_offset: int
    max_timestamp: int


def ending_of(log: Log, end_offset: int) -> TailSegment | None:
    """The truncation of `log`, which has nothing in memory; None if all of it has to be read for that."""
    segment = log.active
    index = segment.index
    if not segment.base_offset < end_offset < log.end_offset or index is None or segment.pending:
        return None
    if log.durability != "sync" or segment.in_memory or segment.damage or any(one.suspect for one in log.segments):
        return None
    return TailSegment(segment, index.up_to(index.entries - 1), end_offset)


def end_of_ending(files: FileSystem, log: Log, ending: TailSegment) -> int:
    """Like `end_of_cut`. Blocking. Raises OSError."""
    spot = _spot(files, files.open(ending.segment.path + ".log"), ending)
    return end_of_cut(files, log, ending.end_offset) if spot is None else spot.end_offset


def cut_ending(files: FileSystem, log: Log, ending: TailSegment) -> TruncatedLog:
    """Like `cut_files`. Blocking. Raises OSError."""
    segment = ending.segment
    file = files.open(segment.path + ".log")
    spot = _spot(files, file, ending)
    if spot is None or not spot.position or len(log.producers) or not log.transactions.is_empty:
        return cut_files(files, log, ending.end_offset)
    number, start = spot.position >> BLOCK_SHIFT, spot.position & -BLOCK_BYTES
    block = file.read(start, min(BLOCK_BYTES, segment.size - start))
    if crc32c(block) != ending.blocks.crc(number):
        return cut_files(files, log, ending.end_offset)
    rest = Segment(segment.path, segment.base_offset)
    rest.size = rest.copied = spot.position
    rest.synced = min(segment.synced, spot.position)
    rest.end_offset = spot.end_offset
    rest.first_timestamp, rest.max_timestamp = segment.first_timestamp, spot.max_timestamp
    rest.index = ending.blocks.up_to(number)
    rest.index.cover(*cover(0, start, [block[: spot.position - start]]))
    truncate(files, rest, rest.index.written)
    return TruncatedLog([*log.segments[:-1], rest], spot.end_offset, ProducerTable(), TransactionTable())


def _spot(files: FileSystem, file: File, ending: TailSegment) -> _Spot | None:
    """None if the file does not match the index. After a start the file has the index's beginning."""
    segment, index, end_offset = ending
    if index.first:
        earlier = read_index(files, segment.path, segment.base_offset, index.first, index.first)
        if earlier is None:
            return None
        index.prepend(earlier)
    entry = index.last_offset(end_offset - segment.base_offset)
    if entry is None:
        return None
    max_timestamp, base_offset = entry.max_timestamp, segment.base_offset + entry.offset
    for position, found, _ in walk_batches(file, entry.position, segment.size, base_offset):
        if position >> BLOCK_SHIFT != entry.position >> BLOCK_SHIFT:
            return None
        if found.next_offset > end_offset:
            return _Spot(position, min(found.base_offset, end_offset), max_timestamp)
        max_timestamp = max(max_timestamp, found.max_timestamp)
    return None
