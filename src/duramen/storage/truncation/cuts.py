"""Truncates a log at an offset, as a follower does when its history diverges from the leader's."""

import errno
from typing import Final, NamedTuple

from duramen.base.ports import FileSystem
from duramen.codec.batch import header
from duramen.storage.log.empty_log import hold_place
from duramen.storage.log.log import LOGS_DIRECTORY, Log
from duramen.storage.log.producers import ProducerTable
from duramen.storage.log.transactions import TransactionalWriters, TransactionTable, enter
from duramen.storage.segment.blocks import ANY_OFFSET
from duramen.storage.segment.checks import ExpectedSegment, damage_of
from duramen.storage.segment.damage import Damage
from duramen.storage.segment.index import BLOCK_BYTES, BLOCK_SHIFT, ENTRY_BYTES, INDEX_HEADER_BYTES, SegmentIndex, cover
from duramen.storage.segment.reader import walk_batches
from duramen.storage.segment.segment import Segment, segment_name

__all__ = ["TruncatedLog", "apply_cut", "cut_files", "cut_memory", "end_in_memory", "end_of_cut", "truncate"]

_DAMAGED: Final = 0x5A17C0DE  # no CRC matches it: each batch of such a block is checked by itself


class TruncatedLog(NamedTuple):
    """The remaining log, according to the remaining batches; the last segment receives appends."""

    segments: list[Segment]
    end_offset: int
    producers: ProducerTable
    transactions: TransactionTable


class _Seen(NamedTuple):
    producers: ProducerTable
    transactions: TransactionTable


def _nothing_seen() -> _Seen:
    return _Seen(ProducerTable(), TransactionTable())


def end_of_cut(files: FileSystem, log: Log, end_offset: int) -> int:
    """The end of `log`, which has nothing in memory, after a truncation to `end_offset`: at a batch boundary.

    A repeated truncation may find later records in place of the batch at the end. Blocking: reads the rest of the
    segment at the end. Raises OSError.
    """
    _check_synced(log)
    end_offset = min(end_offset, log.end_offset)
    for segment, end in log.with_ends():
        if segment.base_offset < end_offset < end and segment.size and files.exists(segment.path + ".log"):
            rest = _Rest(files, log, segment, end, end_offset, _nothing_seen()).segment
            return end_offset if rest.size == segment.size else rest.end_offset
    return end_offset


def cut_files(files: FileSystem, log: Log, end_offset: int) -> TruncatedLog:
    """Truncate the files of `log`, which has nothing in memory, to `end_offset`.

    A batch that reaches beyond is removed as a whole. Damage before it stays damage, and sound batches around it stay.
    Blocking: reads the remaining bytes. Raises OSError.
    """
    _check_synced(log)
    seen = _nothing_seen()
    kept: list[Segment] = []
    for segment, end in log.with_ends():
        if segment.base_offset >= end_offset:
            files.unlink(segment.path + ".log")
            files.unlink(segment.path + ".index")
            continue
        if segment.in_memory:
            kept.append(_rest_in_memory(segment, end_offset, seen))
            end_offset = min(end_offset, kept[-1].end_offset) if end > end_offset else end_offset
            continue
        if segment.size and not files.exists(segment.path + ".log"):
            # Deleted since, according to later frames; or its damage is found when it is read.
            segment.closed = True
            segment.index = None
            kept.append(segment)
            continue
        rest = _Rest(files, log, segment, end, end_offset, seen).segment
        if end <= end_offset or rest.size == segment.size:
            kept.append(segment)
        else:
            kept.append(rest)
            end_offset = rest.end_offset
            truncate(files, rest, 0)
    if kept != log.segments and files.exists(log.directory):
        # An earlier checkpoint may name them, and has no segments of its own left to sync.
        files.sync_directory(log.directory)
        files.sync_directory(LOGS_DIRECTORY)
    if not kept or kept[-1].closed:
        kept.append(Segment(f"{log.directory}/{segment_name(end_offset)}", end_offset))
        if end_offset and log.durability != "memory" and not any(segment.size for segment in kept):
            hold_place(files, log, kept[-1])
    return TruncatedLog(kept, end_offset, *seen)


def truncate(files: FileSystem, rest: Segment, entries: int) -> None:
    """Truncate a segment's files to its rest, and its index to that many entries. Blocking. Raises OSError."""
    file = files.open(rest.path + ".log")
    file.truncate(rest.size)
    file.sync()
    # Otherwise its entries of removed bytes would be trusted again once the segment is closed.
    index_file = files.open(rest.path + ".index", create=True)
    index_file.truncate(min(index_file.size(), INDEX_HEADER_BYTES + ENTRY_BYTES * entries))
    index_file.sync()


def _rest_in_memory(segment: Segment, end_offset: int, writers: TransactionalWriters) -> Segment:
    """The rest of a segment without a file: the segment itself, if all of it stays."""
    rest = Segment(segment.path, segment.base_offset, segment.generation)
    rest.end_offset = segment.base_offset
    rest.in_memory = True
    for batch in segment.pending:
        found = header(batch)
        if found.next_offset > end_offset:
            return rest
        rest.append(batch, found.base_offset, found.next_offset, found.max_timestamp)
        enter(writers, found, batch, found.base_offset, found.max_timestamp)
    return segment


def _check_synced(log: Log) -> None:
    if any(segment.suspect for segment in log.segments):
        # With durability=os nothing else has the records, and they are never rewritten.
        code = errno.EIO if log.durability == "os" else errno.EAGAIN
        raise OSError(code, f"{log.directory} could not be synced and is not rewritten yet")


class _Rest:
    """The rest of a segment: `segment`.

    Its index is not used: for a repeated truncation, the file may have a later one already.

    Damage that reaches up to the end, or has an unknown end, is removed: it looks like the result of a recovery that
    made the same truncation and was interrupted.
    """

    def __init__(
        self,
        files: FileSystem,
        log: Log,
        segment: Segment,
        segment_end: int,
        end_offset: int,
        writers: TransactionalWriters,
    ) -> None:
        self.segment = Segment(segment.path, segment.base_offset, segment.generation)
        self.segment.end_offset = segment.base_offset
        self._index = self.segment.index = SegmentIndex()
        lost, epoch_at = log.damage, segment.epoch_at
        self._expected = ExpectedSegment(segment.size, segment.base_offset, segment_end, ANY_OFFSET, lost, epoch_at)
        self._start_offset = log.start_offset
        self._end_offset = end_offset
        self._writers = writers
        if segment.size:
            self._file = files.open(segment.path + ".log")
            self._walk()
        self.segment.synced = min(segment.synced, self.segment.size)

    def _walk(self) -> None:
        kept: list[Damage] = []
        for hole in damage_of(self._file, self._expected):
            if self._keep(hole.start) and hole.start == self.segment.size:
                if not 0 <= hole.last_offset < self._end_offset:
                    # Records before the log's start were deleted, and are not lost.
                    first = hole.first_offset if self.segment.size else max(hole.first_offset, self._start_offset)
                    self.segment.end_offset = min(first, self._end_offset)
                    break
                self._keep_damaged(hole)
                kept.append(hole)
            else:
                break
        else:
            self._keep(self._expected.size)
        for block in range((self.segment.size + BLOCK_BYTES - 1) >> BLOCK_SHIFT):
            low = block << BLOCK_SHIFT
            if any(hole.end > low and hole.start < low + BLOCK_BYTES for hole in kept):
                self._index.set_crc(block, self._index.crc(block) ^ _DAMAGED)

    def _keep(self, stop: int) -> bool:
        """Keep sound batches up to a position; returns False once one reaches beyond the end."""
        rest, base_offset = self.segment, self._expected.base_offset
        for position, found, whole in walk_batches(self._file, rest.size, stop, rest.end_offset):
            if found.next_offset > self._end_offset:
                # The records before it may be compacted.
                rest.end_offset = min(found.base_offset, self._end_offset)
                return False
            if position == 0:
                rest.first_timestamp = found.max_timestamp
            rest.end_offset = found.next_offset
            rest.max_timestamp = max(rest.max_timestamp, found.max_timestamp)
            rest.size = rest.copied = position + found.size
            self._index.add(position, rest.size, found.next_offset - base_offset, rest.max_timestamp)
            self._index.cover(*cover(self._index.tail_crc, position, [whole]))
            enter(self._writers, found, whole, found.base_offset, found.max_timestamp)
        return True

    def _keep_damaged(self, hole: Damage) -> None:
        rest = self.segment
        rest.end_offset = hole.last_offset + 1
        if hole.end > hole.start:
            rest.size = rest.copied = hole.end
            following = rest.end_offset - self._expected.base_offset
            self._index.add(hole.start, hole.end, following, rest.max_timestamp)
            data = self._file.read(hole.start, hole.end - hole.start)
            self._index.cover(*cover(self._index.tail_crc, hole.start, [data]))


def apply_cut(log: Log, cut: TruncatedLog) -> None:
    """Apply the result of `cut_files`."""
    end_offset = cut.end_offset
    log.segments = cut.segments
    for segment in log.segments:
        segment.takeovers = log.takeovers
    log.producers.replace(cut.producers, end_offset)
    log.transactions.cut_end(end_offset, cut.transactions)
    if log.replicated is not None:
        log.replicated.cut(end_offset)
    _end_at(log, end_offset)


def end_in_memory(log: Log, end_offset: int) -> int | None:
    """The end of `log` after a truncation to `end_offset`, if only memory changes and the old producers are known.

    None if files must be truncated, or if the log was in bulk: then only both checkpoints record the truncation.
    """
    segment, replicated = log.active, log.replicated
    if log.durability == "os":
        return None
    position = segment.pending_start(end_offset) if end_offset < log.end_offset else None
    if position is None or replicated is None or any(one.suspect for one in log.segments):
        return None
    place = segment.pending_header(position).base_offset
    # An empty log may need a file that records its end.
    return place if replicated.remembers(place) and (position or len(log.segments) > 1) else None


def cut_memory(log: Log, end_offset: int) -> int:
    """Truncate `log` as `end_in_memory` allows; returns the freed bytes. No copy may be in progress.

    Files stay as they are, and nothing is read.
    """
    segment, replicated = log.active, log.replicated
    position = segment.pending_start(end_offset)
    if position is None or replicated is None:
        raise ValueError(f"{log.directory} cannot be cut at {end_offset} in memory")
    freed = segment.take_back(position, end_offset)
    replicated.take_back(end_offset, log.producers)
    log.transactions.cut_end(end_offset, log.transactions.left(end_offset))
    _end_at(log, end_offset)
    return freed


def _end_at(log: Log, end_offset: int) -> None:
    log.end_offset = end_offset
    log.synced_offset = min(log.synced_offset, end_offset)
    log.start_offset = min(log.start_offset, end_offset)
    log.cleaned_offset = min(log.cleaned_offset, end_offset)
    log.dirty_offset = min(log.dirty_offset, end_offset)
    log.superseded_offset = min(log.superseded_offset, end_offset)
    log.takeovers.cut(end_offset)
    log.damage = [(first, min(last, end_offset - 1)) for first, last in log.damage if first < end_offset]
    log.version += 1
    log.forget_hints()
