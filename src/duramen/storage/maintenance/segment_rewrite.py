"""Rewrites a segment after a failed sync: its synced beginning from the old file, the rest from the WAL.

The system may have dropped the bytes that it could not write, and a later sync that succeeds proves nothing. So new
files are written, synced, and renamed over the old ones. Every block is compared with the CRC that was computed in
memory. Data that the WAL never had (durability os and memory) comes from the old file, checked by those CRCs. If it is
lost there, zeros take its place, which readers detect as damage; the rest is kept.
"""

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from duramen.base.metrics import Metrics
from duramen.base.ports import Buffer, File, FileSystem
from duramen.codec.batch import header
from duramen.storage.io import write_all
from duramen.storage.log.log import LOGS_DIRECTORY, Log
from duramen.storage.log.sync import SegmentSync, plan_sync, synced
from duramen.storage.maintenance.copier import Copier
from duramen.storage.planning.segment_rewrite import RewriteBatch, follow, placed
from duramen.storage.segment.handles import Handles
from duramen.storage.segment.index import BLOCK_BYTES, BLOCK_SHIFT, INDEX_HEADER_BYTES, IndexHeader, SegmentIndex, cover
from duramen.storage.segment.segment import Segment
from duramen.storage.wal.frames import Frame, FrameType, walk
from duramen.storage.wal.wal import HeldFile, Wal

__all__ = ["NEW_ENDING", "Rewriter", "holds"]

NEW_ENDING: Final = ".new"

_PIECE_BYTES: Final = 1024 * 1024


class _Rewrite(NamedTuple):
    sync: SegmentSync
    header: IndexHeader
    logged: bool  # whether the WAL has the bytes after the synced position
    end_offset: int
    size: int  # including bytes only in memory
    synced: int
    first: int
    crcs: list[int]  # of the blocks from `first` on
    examined: frozenset[int]


class _Rewritten(NamedTuple):
    rewrite: _Rewrite
    files: tuple[File, File] | None  # the new files, once the segment uses them
    error: OSError | None


def holds(log: Log, segment: Segment) -> bool:
    """Whether the log still has `segment`."""
    return not log.deleted and segment in log.segments


def _plan(log: Log, segment: Segment) -> _Rewrite:
    following = log.segments.index(segment) + 1
    index = segment.index if segment.index is not None else SegmentIndex()
    blocks = segment.copied + BLOCK_BYTES - 1 >> BLOCK_SHIFT
    return _Rewrite(
        plan_sync(log, segment),
        IndexHeader(log.id, segment.base_offset, log.key.stream_id, log.key.partition),
        log.durability == "sync",
        log.segments[following].base_offset if following < len(log.segments) else log.end_offset,
        segment.size,
        segment.synced,
        index.first,
        [index.crc(block) for block in range(index.first, blocks)],
        frozenset(segment.examined),
    )


class Rewriter:
    """Rewrites suspect segments one after another, while nothing is copied; reads and appends continue."""

    def __init__(self, files: FileSystem, handles: Handles, wal: Wal, copier: Copier, metrics: Metrics) -> None:
        """`wal` and `copier` provide the bytes; `handles` gets the new files."""
        self._files = files
        self._handles = handles
        self._wal = wal
        self._copier = copier
        self._rewritten = metrics.counter("duramen_segments_rewritten_total")

    def rewrite(self, since: int, done: Callable[[OSError | None], None]) -> None:
        """Rewrite every suspect segment, then `done(None)`, or `done(error)` if one of them is still suspect.

        The WAL has everything after their synced positions from its position `since` on.
        """

        def plan() -> partial[list[_Rewritten]]:
            unsynced = self._copier.unsynced
            for segment, log in list(unsynced.items()):
                if not holds(log, segment):
                    del unsynced[segment]
            rewrites = [_plan(log, segment) for segment, log in unsynced.items() if segment.suspect]
            return partial(_rewrite_all, self._files, rewrites, self._wal.held(since))

        def finished(result: list[_Rewritten] | BaseException) -> None:
            if isinstance(result, BaseException):
                done(result if isinstance(result, OSError) else OSError(str(result)))
                return
            for rewritten in result:
                self._take_over(rewritten)
            done(next((rewritten.error for rewritten in result if rewritten.error is not None), None))

        self._copier.alone(plan, finished)

    def _take_over(self, rewritten: _Rewritten) -> None:
        sync = rewritten.rewrite.sync
        segment = sync.segment
        if rewritten.files is None or not holds(sync.log, segment):
            return
        segment.replace()
        sync.log.forget_hints()
        self._handles.keep(segment, *rewritten.files)
        if rewritten.error is None:
            segment.suspect = False
            synced(sync)
            self._copier.unsynced.pop(segment, None)
            self._rewritten.value += 1


def _rewrite_all(files: FileSystem, rewrites: list[_Rewrite], held: list[HeldFile]) -> list[_Rewritten]:
    batches: dict[int, list[RewriteBatch]] = {rewrite.sync.log.id: [] for rewrite in rewrites if rewrite.logged}
    for file in held if batches else ():
        for frame in walk(*file):
            if frame.type is FrameType.APPEND and frame.log_id in batches:
                follow(batches[frame.log_id], _batch(file.file, frame))
    return [_rewrite(files, rewrite, batches.get(rewrite.sync.log.id, [])) for rewrite in rewrites]


def _batch(file: File, frame: Frame) -> RewriteBatch:
    found, size = header(frame.payload), len(frame.payload)
    return RewriteBatch(found.base_offset, found.next_offset, file, frame.end - size, size)


def _rewrite(files: FileSystem, rewrite: _Rewrite, batches: list[RewriteBatch]) -> _Rewritten:
    path, directory = rewrite.sync.segment.path, rewrite.sync.log.directory
    endings = (".log", ".index")
    made: list[File] = []
    named = False
    unsettled = files.exists(path + ".index" + NEW_ENDING)  # it shows that the other name may not be durable
    try:
        if unsettled:
            files.sync_directory(directory)
            unsettled = False
        for ending in endings:
            files.unlink(path + ending + NEW_ENDING)
            made.append(files.open(path + ending + NEW_ENDING, create=True))
        _write_log(files, rewrite, batches, made[0])
        _write_index(files, rewrite, made[1])
        for file in made:
            file.sync()
        for ending in endings:
            files.rename(path + ending + NEW_ENDING, path + ending)
            named = unsettled = True
            files.sync_directory(directory)
            unsettled = False
        if rewrite.synced == 0:
            files.sync_directory(LOGS_DIRECTORY)
    except OSError as error:
        with suppress(OSError):
            if unsettled:
                files.sync_directory(directory)
            for ending in endings:
                files.unlink(path + ending + NEW_ENDING)
        # With the new name, copies must go to the new file too: the segment is rewritten from its start anyway.
        return _Rewritten(rewrite, (made[0], made[1]) if named else None, error)
    return _Rewritten(rewrite, (made[0], made[1]), None)


def _write_log(files: FileSystem, rewrite: _Rewrite, batches: list[RewriteBatch], new: File) -> None:
    known = _known_crcs(files, rewrite)
    path = rewrite.sync.segment.path
    old = _old_log(files, rewrite) if _from_old(rewrite) else None
    lost = 0 if old is not None else _from_old(rewrite) + BLOCK_BYTES - 1 >> BLOCK_SHIFT

    def check(block: int, crc: int) -> None:
        # A reader has reported damage in this synced block: its bytes and the CRC are kept unchanged.
        damaged = block < lost or (block < rewrite.synced >> BLOCK_SHIFT and block in rewrite.examined)
        if known.get(block, crc) != crc and not damaged:
            raise OSError(errno.EIO, f"{path}.log cannot be rewritten: block {block} has changed")

    position = tail_crc = 0
    for piece in _joined(_pieces(old, rewrite, batches)):
        write_all(new, [piece], position)
        whole, tail_crc = cover(tail_crc, position, [piece])
        for at, crc in enumerate(whole, position >> BLOCK_SHIFT):
            check(at, crc)
        position += len(piece)
    if position & (BLOCK_BYTES - 1):
        check(position >> BLOCK_SHIFT, tail_crc)


def _known_crcs(files: FileSystem, rewrite: _Rewrite) -> dict[int, int]:
    """The CRC of each block; those from before the start are in the index file, and absent if it is damaged."""
    first = rewrite.first
    known = dict(enumerate(rewrite.crcs, first))
    earlier = SegmentIndex.decode(_old_index(files, rewrite), first, first)
    if earlier is not None:
        known.update((block, earlier.crc(block)) for block in range(first))
    return known


def _old_index(files: FileSystem, rewrite: _Rewrite) -> Buffer:
    try:
        file = rewrite.sync.index_file or files.open(rewrite.sync.segment.path + ".index")
    except FileNotFoundError:
        return b""
    return file.read(0, rewrite.sync.index_position)


def _write_index(files: FileSystem, rewrite: _Rewrite, new: File) -> None:
    # An entry has its own CRC: a bad or missing one is rebuilt when it is read.
    earlier = memoryview(_old_index(files, rewrite))[INDEX_HEADER_BYTES:]
    write_all(new, [rewrite.header.encode(), earlier], 0)
    if rewrite.sync.index_bytes:
        write_all(new, [rewrite.sync.index_bytes], rewrite.sync.index_position)


def _from_old(rewrite: _Rewrite) -> int:
    """The end of the bytes that come from the old file."""
    return rewrite.synced if rewrite.logged else rewrite.sync.size


def _old_log(files: FileSystem, rewrite: _Rewrite) -> File | None:
    """The old file; None if it does not exist."""
    try:
        return rewrite.sync.file or files.open(rewrite.sync.segment.path + ".log")
    except FileNotFoundError:
        return None


def _pieces(old: File | None, rewrite: _Rewrite, batches: list[RewriteBatch]) -> Iterator[Buffer]:
    """The segment's bytes in order, up to the copied position. Raises OSError if some are missing."""
    sync, start, end = rewrite.sync, rewrite.synced, _from_old(rewrite)
    path = sync.segment.path + ".log"
    for position in range(0, end, _PIECE_BYTES):
        size = min(_PIECE_BYTES, end - position)
        piece = bytes(size) if old is None else old.read(position, size)
        if len(piece) < size:
            raise OSError(errno.EIO, f"{path} cannot be written again: it ends before byte {position + size}")
        yield piece
    found = placed(batches, rewrite.end_offset, rewrite.size, start) if rewrite.logged else []
    if found is None:
        raise OSError(errno.EIO, f"{path} cannot be written again: the write-ahead log does not have all of it")
    for position, batch in found:
        if position < sync.size:
            yield batch.file.read(batch.place, batch.size)


def _joined(pieces: Iterable[Buffer]) -> Iterator[Buffer]:
    """Small pieces joined, so that they are not written one by one."""
    small: list[Buffer] = []
    size = 0
    for piece in pieces:
        small.append(piece)
        size += len(piece)
        if size >= _PIECE_BYTES:
            yield b"".join(small)
            small, size = [], 0
    if small:
        yield b"".join(small)
