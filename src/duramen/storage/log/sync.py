"""Makes segments durable: index entries, bytes, and the names of new files."""

from collections.abc import Iterable
from typing import NamedTuple

from duramen.base.ports import File, FileSystem
from duramen.storage.io import is_passing, write_all
from duramen.storage.log.log import LOGS_DIRECTORY, Log
from duramen.storage.segment.index import BLOCK_SHIFT, ENTRY_BYTES, INDEX_HEADER_BYTES, closed_entries
from duramen.storage.segment.segment import Segment

__all__ = ["SegmentSync", "plan_sync", "sync_segments", "synced", "write_index"]


class SegmentSync(NamedTuple):
    """A segment to sync, with the index entries of its completed blocks."""

    log: Log
    segment: Segment
    size: int
    entries: int
    index_bytes: bytes
    index_position: int
    file: File | None
    index_file: File | None


def plan_sync(log: Log, segment: Segment) -> SegmentSync:
    """The work of a job that makes all copied bytes of `segment` durable."""
    index = segment.index
    entries, index_bytes, index_position = 0, b"", 0
    if index is not None:
        finished = segment.closed and segment.copied == segment.size
        entries = closed_entries(segment.size) if finished else segment.copied >> BLOCK_SHIFT
        index_bytes = index.encode(index.written, entries)
        index_position = INDEX_HEADER_BYTES + index.written * ENTRY_BYTES
    return SegmentSync(
        log, segment, segment.copied, entries, index_bytes, index_position, segment.file, segment.index_file
    )


def write_index(files: FileSystem, sync: SegmentSync) -> None:
    """Write the new index entries: before the sync that moves the segment's synced position past their blocks.

    Blocking. Raises OSError; repeating the write is harmless.
    """
    if sync.index_bytes and not sync.log.deleted:
        index_file = sync.index_file or files.open(sync.segment.path + ".index", create=True)
        write_all(index_file, [sync.index_bytes], sync.index_position)


def sync_segments(files: FileSystem, syncs: Iterable[SegmentSync]) -> list[tuple[SegmentSync, OSError]]:
    """Sync each segment and its index, and the directories of new ones; returns those whose sync failed.

    After a failure the directories are not synced. Blocking. Raises OSError if a directory could not be synced, or a
    file could not be opened for a passing reason.
    """
    failures: list[tuple[SegmentSync, OSError]] = []
    unopened: OSError | None = None
    made: dict[str, None] = {}
    for sync in syncs:
        if sync.log.deleted and not files.exists(sync.segment.path + ".log"):
            continue
        try:
            failure = _sync(files, sync)
        except OSError as error:
            unopened = error
        else:
            failures += [] if failure is None else [(sync, failure)]
        if sync.segment.synced == 0:
            made[sync.log.directory] = None
    if failures:
        return failures
    if unopened is not None:
        raise unopened
    for directory in made:
        files.sync_directory(directory)
    if made:
        files.sync_directory(LOGS_DIRECTORY)
    return failures


def _sync(files: FileSystem, sync: SegmentSync) -> OSError | None:
    """The reason why a segment or its index may not be durable. Raises OSError if no sync was tried."""
    try:
        opened = _files_to_sync(files, sync)
    except OSError as error:
        if is_passing(error):
            raise
        return error
    try:
        for file in opened:
            file.sync()
    except OSError as error:
        return error
    return None


def _files_to_sync(files: FileSystem, sync: SegmentSync) -> list[File]:
    found: list[File] = []
    if _index_differs(files, sync) and not sync.log.deleted:
        found.append(sync.index_file or files.open(sync.segment.path + ".index"))
    found.append(sync.file or files.open(sync.segment.path + ".log"))
    return found


def _index_differs(files: FileSystem, sync: SegmentSync) -> bool:
    """Whether the index has unsynced parts: new entries, or the header, which names the log."""
    return bool(sync.index_bytes) or (sync.segment.synced == 0 and files.exists(sync.segment.path + ".index"))


def synced(sync: SegmentSync) -> None:
    """Note that the job succeeded."""
    sync.segment.synced = sync.size
    if sync.segment.index is not None:
        sync.segment.index.written = sync.entries
