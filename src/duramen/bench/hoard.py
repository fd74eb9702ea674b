"""A data directory with many large logs, created at once, as a node leaves it after a clean stop.

Every record in it is real and readable: batches of 1 MiB with one value of zeros, so that all but the first page of
each is a hole in a sparse file, and indexes with the CRC of every block. All logs have the same batches: closed
segments are hard links to one file. So 100 GB take less than 100 MB of disk and are deleted quickly.
"""

import os
import time
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from duramen.base.ids import METADATA_STREAM_ID, LogId, new_stream_id
from duramen.base.leader_epochs import Takeover
from duramen.base.ports import FileSystem
from duramen.codec.batch import HEADER_BYTES, BatchInput, check, encode, stamp
from duramen.metadata.events import StreamCreated, encode_event
from duramen.node.offline import data_files
from duramen.storage.checkpoint import NodeCheckpoint, write_checkpoint
from duramen.storage.directory import open_directory
from duramen.storage.io import write_all
from duramen.storage.log.log import Log, LogConfig, LogKey, log_directory
from duramen.storage.log.sync import plan_sync, write_index
from duramen.storage.maintenance.copier import plan_writes, take_over, write_segment
from duramen.storage.segment.handles import Handles
from duramen.storage.segment.index import IndexHeader, SegmentIndex, cover
from duramen.storage.segment.segment import Segment, segment_name
from duramen.storage.wal.frames import position

__all__ = ["Hoard", "make_hoard", "stream_name"]

BATCH_BYTES: Final = 1 << 20
_PAGE_BYTES: Final = 4096
_OVERHEAD_BYTES: Final = HEADER_BYTES + 11  # of a record with a value of this size, lengths included
_EPOCH: Final = 1
_NODE_ID: Final = 1
_OPEN_SEGMENTS: Final = 16
_FIRST_LOG: Final = 2  # after that of the metadata


class Hoard(NamedTuple):
    """What is to be made: `streams` with `partitions` each, in every partition `batches` of 1 MiB, at least one."""

    streams: int
    partitions: int
    batches: int

    @property
    def logs(self) -> int:
        """Logs in all."""
        return self.streams * self.partitions

    @property
    def size(self) -> int:
        """Bytes of records in all."""
        return self.logs * self.batches * BATCH_BYTES


class _Entropy:
    """The port of randomness."""

    def token(self, size: int) -> bytes:
        return os.urandom(size)


def stream_name(number: int) -> str:
    """The name of the stream of that number, from 0."""
    return f"hoard-{number:05d}"


def make_hoard(data_dir: Path, hoard: Hoard) -> None:
    """Make the directory, which does not exist or is empty. Raises DuramenError or OSError."""
    files = data_files(data_dir)
    directory = open_directory(files, _Entropy(), str(data_dir))
    try:
        handles = Handles(files, _OPEN_SEGMENTS)
        now_ms = int(1000 * time.time())
        events = [
            StreamCreated(stream_name(number), str(new_stream_id(os.urandom(16))), hoard.partitions, at_ms=now_ms)
            for number in range(hoard.streams)
        ]
        states = [_write_metadata(files, handles, events, now_ms)]
        parts = _parts(hoard.batches, now_ms)
        keys = [LogKey(UUID(event.id), index) for event in events for index in range(hoard.partitions)]
        for log_id, key in enumerate(keys, _FIRST_LOG):
            states.append(_write_log(files, data_dir, handles, LogId(log_id), key, parts))
        checkpoint = NodeCheckpoint(
            directory.id.bytes, _EPOCH, len(keys) + 2, position(1, 0), 1, clean=True, logs=states
        )
        write_checkpoint(files, 1, checkpoint)
    finally:
        directory.lock.release()


def _write_metadata(files: FileSystem, handles: Handles, events: list[StreamCreated], now_ms: int) -> msgspec.Raw:
    """The log that says which streams there are, a batch a stream, as if they were created one after another."""
    log = _new_log(LogId(1), LogKey(METADATA_STREAM_ID, 0), handles)
    for event in events:
        batch = encode([BatchInput(now_ms, None, encode_event(event))])
        stamp(batch, log.end_offset, _EPOCH)
        log.active.append(batch, log.end_offset, log.end_offset + 1, now_ms)
        log.end_offset += 1
    for write in plan_writes(log):
        take_over(handles, write_segment(files, write))
    write_index(files, plan_sync(log, log.active))
    return _state(log)


def _new_log(log_id: LogId, key: LogKey, handles: Handles) -> Log:
    log = Log(log_id, key, LogConfig(), handles)
    log.takeovers.add(Takeover(_EPOCH, _NODE_ID, 0))
    return log


def _state(log: Log) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(log.state()))


class _Part(NamedTuple):
    """A segment that each log has: as it would be in memory, the first page of each batch, its index entries."""

    segment: Segment
    pages: list[bytes]
    entries: bytes


def _parts(batches: int, now_ms: int) -> list[_Part]:
    """A closed segment with all batches but the last, and that one in the segment that is appended to."""
    closed = [_part(0, batches - 1, now_ms, closed=True)] if batches > 1 else []
    return [*closed, _part(batches - 1, 1, now_ms, closed=False)]


def _part(base_offset: int, batches: int, now_ms: int, *, closed: bool) -> _Part:
    batch = encode([BatchInput(now_ms, None, bytes(BATCH_BYTES - _OVERHEAD_BYTES))])
    found = check(batch)
    if found.size != BATCH_BYTES or any(batch[_PAGE_BYTES:]):
        raise AssertionError(f"a batch of {found.size} bytes is not what holes can stand for")
    segment = Segment("", base_offset)
    index = segment.index = SegmentIndex()
    pages = []
    for number in range(batches):
        stamp(batch, base_offset + number, _EPOCH)
        pages.append(bytes(batch[:_PAGE_BYTES]))
        start = number * BATCH_BYTES
        index.add(start, start + BATCH_BYTES, number + 1, now_ms)
        index.cover(*cover(0, start, [batch]))
    segment.size = segment.copied = batches * BATCH_BYTES
    segment.first_timestamp = segment.max_timestamp = now_ms
    segment.closed = closed
    return _Part(segment, pages, index.encode(0, index.entries if closed else index.blocks))


def _write_log(
    files: FileSystem, data_dir: Path, handles: Handles, log_id: LogId, key: LogKey, parts: list[_Part]
) -> msgspec.Raw:
    log = _new_log(log_id, key, handles)
    files.make_directory(log.directory)
    for part in parts:
        name = segment_name(part.segment.base_offset)
        path = f"{log.directory}/{name}"
        first = f"{log_directory(_FIRST_LOG)}/{name}.log"
        if part.segment.closed and log_id != _FIRST_LOG:
            # Nobody writes to a closed segment: all logs may have the same one.
            (data_dir / f"{path}.log").hardlink_to(data_dir / first)
        else:
            file = files.open(path + ".log", create=True)
            for number, page in enumerate(part.pages):
                write_all(file, [page], number * BATCH_BYTES)
            file.truncate(part.segment.size)
        header = IndexHeader(log.id, part.segment.base_offset, key.stream_id, key.partition).encode()
        write_all(files.open(path + ".index", create=True), [header, part.entries], 0)
    log.segments = [part.segment for part in parts]
    log.end_offset = sum(len(part.pages) for part in parts)
    return _state(log)
