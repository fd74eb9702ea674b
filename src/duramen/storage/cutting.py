"""Cutting a log: what lies at or beyond an offset goes, as a follower does whose history parted from the leader's."""

import errno
from typing import NamedTuple

from duramen.base.ports import FileSystem
from duramen.storage.index import INDEX_HEADER_BYTES, SegmentIndex, cover
from duramen.storage.log import LOGS_DIRECTORY, Log
from duramen.storage.producers import ProducerTable
from duramen.storage.reader import walk_batches
from duramen.storage.segment import Segment, segment_name

__all__ = ["Cut", "apply_cut", "cut_files"]


class Cut(NamedTuple):
    """What is left, as the batches left describe it; the last segment is the one to append to."""

    segments: list[Segment]
    end_offset: int
    producers: ProducerTable


def cut_files(files: FileSystem, log: Log, end_offset: int) -> Cut:
    """Cut the files of `log`, which has nothing in memory, so that it ends at `end_offset`.

    A batch that reaches beyond goes whole. Blocking: reads what is left. Raises OSError.
    """
    if any(segment.suspect for segment in log.segments):
        raise OSError(errno.EIO, f"{log.directory} could not be synced and has not been written again yet")
    producers = ProducerTable()
    kept: list[Segment] = []
    for segment in log.segments:
        if segment.base_offset >= end_offset:
            files.unlink(segment.path + ".log")
            files.unlink(segment.path + ".index")
            continue
        if segment.size and not files.exists(segment.path + ".log"):
            # Let go since, as the write-ahead log says further on; or it is found when it is read.
            segment.closed = True
            kept.append(segment)
            continue
        rest, rest_end = _rewalk(files, segment, end_offset, producers)
        rest.synced = min(segment.synced, rest.size)
        if rest.size == segment.size:
            kept.append(segment)
        else:
            kept.append(rest)
            end_offset = rest_end
            file = files.open(rest.path + ".log")
            file.truncate(rest.size)
            file.sync()
            # What it says of bytes that are gone would be believed again once the segment is closed.
            index_file = files.open(rest.path + ".index", create=True)
            index_file.truncate(min(index_file.size(), INDEX_HEADER_BYTES))
            index_file.sync()
    if kept != log.segments and files.exists(log.directory):
        # A checkpoint that began before the cut may name them, and finds none of its own to sync any more.
        files.sync_directory(log.directory)
        files.sync_directory(LOGS_DIRECTORY)
    if not kept or kept[-1].closed:
        kept.append(Segment(f"{log.directory}/{segment_name(end_offset)}", end_offset))
    return Cut(kept, end_offset, producers)


def _rewalk(files: FileSystem, segment: Segment, end_offset: int, producers: ProducerTable) -> tuple[Segment, int]:
    rest, next_offset = Segment(segment.path, segment.base_offset, segment.generation), segment.base_offset
    index = rest.index = SegmentIndex()
    if segment.size:
        file = files.open(segment.path + ".log")
        for position, found, whole in walk_batches(file, 0, segment.size, segment.base_offset):
            if found.next_offset > end_offset:
                next_offset = min(found.base_offset, end_offset)  # what lies before it may have been compacted away
                break
            if position == 0:
                rest.first_timestamp = found.max_timestamp
            next_offset = found.next_offset
            rest.max_timestamp = max(rest.max_timestamp, found.max_timestamp)
            rest.size = rest.copied = position + found.size
            index.add(position, rest.size, next_offset - segment.base_offset, rest.max_timestamp)
            index.cover(*cover(index.tail_crc, position, [whole]))
            if found.producer_id >= 0:
                producers.add(found, found.base_offset, found.max_timestamp)
    rest.end_offset = next_offset
    return rest, next_offset


def apply_cut(log: Log, cut: Cut) -> None:
    """Take over what `cut_files` left."""
    end_offset = cut.end_offset
    log.segments = cut.segments
    log.end_offset = end_offset
    log.synced_offset = min(log.synced_offset, end_offset)
    log.start_offset = min(log.start_offset, end_offset)
    log.cleaned_offset = min(log.cleaned_offset, end_offset)
    log.dirty_offset = min(log.dirty_offset, end_offset)
    log.takeovers.cut(end_offset)
    log.producers = cut.producers
    log.damage = [(first, min(last, end_offset - 1)) for first, last in log.damage if first < end_offset]
    log.version += 1
    log.forget_hints()
