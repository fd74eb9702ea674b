"""Logs with durability=os, whose batches are not in the write-ahead log: their segments are read to the end.

Blocking.
"""

from collections.abc import Mapping

from duramen.base.ports import File, FileSystem
from duramen.storage.io import write_all
from duramen.storage.log.log import Log
from duramen.storage.log.producers import ANY_ID
from duramen.storage.recovery.logs import WRITE_BYTES, LogsFound
from duramen.storage.recovery.progress import RecoveryProgress
from duramen.storage.recovery.rescue import adopt
from duramen.storage.segment.reader import walk_batches
from duramen.storage.segment.segment import parse_segment_name

__all__ = ["read_on"]


def read_on(found: LogsFound, start_offsets: Mapping[Log, int], progress: RecoveryProgress) -> None:
    """Keep whole sound batches after the checkpointed positions; `start_offsets` are the logs' starts in the WAL.

    Raises OSError.
    """
    progress.begin("reading the segments of durability=os", len(found.logs))
    for log in found.logs.values():
        progress.logs_done += 1
        if log.durability == "os":
            start_offset = start_offsets.get(log, 0)
            while _read_on_segment(found, log, start_offset):
                log.roll()
            if log.end_offset == start_offset and log.active.size:
                log.roll()  # all of it was deleted, and its file may not exist
            found.drop(log, start_offset)
            # Bytes that a power loss left after the new end must never return to the log: their epoch is not used
            # again.
            found.lost_epoch = max(found.lost_epoch, log.takeovers.latest_epoch)
            log.takeovers.cut(log.end_offset + 1)
            if found.files.exists(log.active.path + ".log"):  # else it is damage, found when it is read
                found.unsynced[log.active] = log
            found.note_unsynced(log)


def _read_on_segment(found: LogsFound, log: Log, start_offset: int) -> bool:
    """Read the active segment's file from its known end; returns whether another segment follows."""
    segment = log.active
    path = segment.path + ".log"
    if found.files.exists(path):
        file = found.files.open(path)
        size, known = file.size(), segment.size
        for _, head, whole in walk_batches(file, segment.size, size, log.end_offset):
            epoch = log.takeovers.epoch_at(head.base_offset)
            if head.base_offset != log.end_offset or head.leader_epoch != epoch:
                break
            adopt(log, head, whole)
        _write_again(file, known, segment.size)
        if segment.size > known:
            found.rescue.name(log, segment)  # a power loss may have removed that
        if segment.size < size:
            file.truncate(segment.size)
            file.sync()  # even if nothing is left to sync later
    following = f"{log.directory}/{log.end_offset:020d}.log"
    if segment.size > 0 and segment.base_offset < log.end_offset and found.files.exists(following):
        return True  # even if it was deleted: its batches show the state of producers
    if log.end_offset <= start_offset:
        # Retention had deleted these files already, and the producers of their records are unknown.
        before = log.end_offset
        log.end_offset = log.synced_offset = _next_base(found.files, log, start_offset)
        if before < log.end_offset:
            log.producers.forget_up_to(ANY_ID)
        return segment.base_offset < log.end_offset
    return False


def _next_base(files: FileSystem, log: Log, start_offset: int) -> int:
    """The base offset of the log's next file, at most `start_offset`, before which nothing is needed."""
    names = files.names(log.directory) if files.exists(log.directory) else []
    found = [parse_segment_name(name.removesuffix(".log")) for name in names if name.endswith(".log")]
    return min([place[0] for place in found if place and log.end_offset < place[0] < start_offset] + [start_offset])


def _write_again(file: File, start: int, end: int) -> None:
    """Rewrite these bytes: a sync of them may have failed, and the system considers them clean since."""
    for at in range(start, end, WRITE_BYTES):
        write_all(file, [file.read(at, min(WRITE_BYTES, end - at))], at)
