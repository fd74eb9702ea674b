"""The empty files of a log without records, which record the log's identity and its end offset.

Otherwise only the checkpoints have the end offset; without them the log would start at 0 again. Blocking.
"""

from duramen.base.ports import FileSystem
from duramen.storage.io import write_all
from duramen.storage.log.log import LOGS_DIRECTORY, Log
from duramen.storage.segment.index import IndexHeader
from duramen.storage.segment.segment import Segment

__all__ = ["hold_place", "is_held", "placeholder"]


def placeholder(log: Log) -> Segment | None:
    """The segment whose empty files record the end of the log; None if batches record it, or it is 0."""
    segment = log.active
    if segment.in_memory or not log.end_offset or any(each.size for each in log.segments):
        return None
    return segment


def is_held(files: FileSystem, segment: Segment) -> bool:
    """Whether the files of `segment` exist and have a header, as far as is known without reading them."""
    index = segment.path + ".index"
    if not files.exists(segment.path + ".log") or not files.exists(index):
        return False
    file = files.open(index, read_only=True)
    size = file.size()
    file.close()
    return size > 0


def hold_place(files: FileSystem, log: Log, segment: Segment) -> None:
    """Create the files of `segment` unless they exist; durable on return. Raises OSError.

    Concurrent appends to it are possible: existing content stays.
    """
    files.make_directory(log.directory)
    index = files.open(segment.path + ".index", create=True)
    if not index.size():
        head = IndexHeader(log.id, segment.base_offset, log.key.stream_id, log.key.partition)
        write_all(index, [head.encode()], 0)
    index.sync()
    index.close()
    files.open(segment.path + ".log", create=True).close()
    files.sync_directory(log.directory)
    files.sync_directory(LOGS_DIRECTORY)
