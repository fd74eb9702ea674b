"""When no checkpoint is sound: what the segments' batches themselves say. Blocking, and slow by its nature."""

from collections.abc import Callable

from duramen.base.ids import LogId
from duramen.base.ports import FileSystem
from duramen.storage.handles import Handles
from duramen.storage.index import INDEX_HEADER_BYTES, SegmentIndex, cover, read_header
from duramen.storage.log import LOGS_DIRECTORY, Log, LogConfig, LogKey
from duramen.storage.reader import walk_batches
from duramen.storage.segment import Segment
from duramen.storage.takeovers import Takeover

__all__ = ["rescue_logs"]

_UNKNOWN_LEADER = -1


def rescue_logs(files: FileSystem, handles: Handles, find: Callable[[str], None]) -> dict[LogId, Log]:
    """Every log whose segments name it, with offsets, epochs and producers made anew from its batches.

    The leaders' ids of past epochs are lost (-1). `find` is told what could not be brought back. Raises OSError.
    """
    logs: dict[LogId, Log] = {}
    for name in files.names(LOGS_DIRECTORY):
        if name.isdigit():
            log = _rescue_log(files, handles, LogId(int(name)), find)
            if log is not None:
                logs[log.id] = log
    return logs


def _rescue_log(files: FileSystem, handles: Handles, log_id: LogId, find: Callable[[str], None]) -> Log | None:
    directory = f"{LOGS_DIRECTORY}/{log_id}"
    bases = sorted(int(name[:-4]) for name in files.names(directory) if name.endswith(".log") and name[:-4].isdigit())
    key = None
    for base in bases:
        path = f"{directory}/{base:020d}.index"
        if files.exists(path):
            found = read_header(files.open(path).read(0, INDEX_HEADER_BYTES))
            if found is not None and found.log_id == log_id:
                key = LogKey(found.stream_id, found.partition)
                break
    if key is None:
        if bases:
            find(f"{directory}: no index says whose log it is; its records are left where they are")
        return None
    log = Log(log_id, key, LogConfig(), handles)
    log.written = True
    log.segments = []
    log.start_offset = log.end_offset = bases[0]
    for base in bases:
        log.segments.append(_rescue_segment(files, log, base, find))
        if len(log.segments) > 1:
            log.segments[-2].closed = True
            log.close_index(log.segments[-2])
    log.synced_offset = log.end_offset
    return log


def _rescue_segment(files: FileSystem, log: Log, base: int, find: Callable[[str], None]) -> Segment:
    segment = Segment(f"{log.directory}/{base:020d}", base)
    index = segment.index = SegmentIndex()
    if base > log.end_offset:
        log.damage.append((log.end_offset, base - 1))
        find(f"log {log.id}: offsets {log.end_offset} to {base - 1} are missing")
    log.end_offset = max(log.end_offset, base)
    file = files.open(segment.path + ".log")
    size = file.size()
    for position, found, whole in walk_batches(file, 0, size, base):
        if position == 0:
            segment.first_timestamp = found.max_timestamp
        if found.leader_epoch > log.takeovers.latest_epoch:
            log.takeovers.add(Takeover(found.leader_epoch, _UNKNOWN_LEADER, found.base_offset))
        if found.producer_id >= 0:
            log.producers.add(found, found.base_offset, found.max_timestamp)
        segment.max_timestamp = max(segment.max_timestamp, found.max_timestamp)
        segment.size = segment.copied = segment.synced = position + found.size
        log.end_offset = found.next_offset
        index.add(position, segment.size, found.next_offset - base, segment.max_timestamp)
        index.cover(*cover(index.tail_crc, position, [whole]))
    if segment.size < size:
        find(f"{segment.path}.log: no sound batch from byte {segment.size} on; cut there")
        file.truncate(segment.size)
        file.sync()
    return segment
