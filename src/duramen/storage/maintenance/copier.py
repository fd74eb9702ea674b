"""The deferred copy: merges batches that wait in memory and writes them to their segments in a job.

One job at a time, in the worker's `disk` lane. Copied data is not synced yet; the checkpointer syncs it.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from duramen.base.errors import LogDamaged
from duramen.base.metrics import Metrics
from duramen.base.ports import Buffer, File, FileSystem, Worker
from duramen.storage.io import write_all
from duramen.storage.log.log import LOGS_DIRECTORY, Log
from duramen.storage.segment.handles import Handles
from duramen.storage.segment.index import INDEX_HEADER_BYTES, IndexHeader, cover
from duramen.storage.segment.segment import Segment

__all__ = ["CopiedBytes", "Copier", "SegmentWrite", "plan_writes", "take_over", "write_segment"]

_JOIN_BYTES = 256 * 1024
_LEFT_OPEN: Final = 64

T = TypeVar("T")


class SegmentWrite(NamedTuple):
    """A job's write to one segment: `buffers` at `position`."""

    log: Log
    segment: Segment
    header: IndexHeader
    path: str
    file: File | None
    index_file: File | None
    position: int
    tail_crc: int
    buffers: list[Buffer]


class CopiedBytes(NamedTuple):
    """The result: the files, if they were left open, and the CRCs of the completed and the started blocks."""

    write: SegmentWrite
    file: File | None
    index_file: File | None
    end: int
    crcs: list[int]
    tail_crc: int


def _create_segment_files(files: FileSystem, path: str, header: IndexHeader) -> tuple[File, File]:
    """Create a segment's two files, empty except for the index header. Blocking. Raises OSError."""
    files.make_directory(path.rpartition("/")[0])
    file, index_file = (files.open(path + ending, create=True) for ending in (".log", ".index"))
    if file.size():
        file.truncate(0)  # recovery abandoned this name: its content is invalid
    write_all(index_file, [header.encode()], 0)  # first, because only this may name the log
    if index_file.size() > INDEX_HEADER_BYTES:
        index_file.truncate(INDEX_HEADER_BYTES)
    return file, index_file


def write_segment(files: FileSystem, write: SegmentWrite) -> CopiedBytes:
    """Write one segment's waiting batches and compute the CRCs of their blocks. Blocking. Raises OSError."""
    file, index_file = write.file, write.index_file
    if file is None or index_file is None:
        if write.position == 0:
            file, index_file = _create_segment_files(files, write.path, write.header)
        else:
            # A missing file is damage, found when it is read; new records must still be written.
            files.make_directory(write.log.directory)
            missing = not (files.exists(write.path + ".log") and files.exists(write.path + ".index"))
            file = files.open(write.path + ".log", create=True)
            index_file = files.open(write.path + ".index", create=True)
            if not index_file.size():
                write_all(index_file, [write.header.encode()], 0)  # it names the log
            if missing:
                files.sync_directory(write.log.directory)
                files.sync_directory(LOGS_DIRECTORY)
    position, crcs, tail_crc = write.position, [], write.tail_crc
    for chunk in _chunks(write.buffers):
        write_all(file, chunk, position)
        # Written back continuously: a sync of much data would delay those of the write-ahead log.
        file.write_back(position, sum(map(len, chunk)))
        whole, tail_crc = cover(tail_crc, position, chunk)
        crcs += whole
        position += sum(map(len, chunk))
    return CopiedBytes(write, file, index_file, position, crcs, tail_crc)


def _write_all(files: FileSystem, writes: list[SegmentWrite]) -> list[CopiedBytes]:
    """Write them one after another; of newly opened files only a few stay open."""
    result: list[CopiedBytes] = []
    opened = 0
    for write in writes:
        if write.log.deleted:
            continue
        written = write_segment(files, write)
        if write.file is None:
            opened += 1
            if opened > _LEFT_OPEN:
                # Ten thousand logs may have pending copies; a process cannot have that many open files.
                written = _closed(written)
        result.append(written)
    return result


def _closed(written: CopiedBytes) -> CopiedBytes:
    for file in (written.file, written.index_file):
        if file is not None:
            file.close()
    return written._replace(file=None, index_file=None)


def _plan_write(log: Log, segment: Segment, buffers: list[Buffer]) -> SegmentWrite:
    return SegmentWrite(
        log,
        segment,
        IndexHeader(log.id, segment.base_offset, log.key.stream_id, log.key.partition),
        segment.path,
        segment.file,
        segment.index_file,
        segment.copied,
        segment.index.tail_crc if segment.index is not None else 0,
        buffers,
    )


def plan_writes(log: Log) -> list[SegmentWrite]:
    """The writes after which nothing of `log` waits in memory."""
    return [
        _plan_write(log, segment, list(segment.pending))
        for segment in log.segments
        if segment.pending and not segment.in_memory
    ]


def take_over(handles: Handles, written: CopiedBytes) -> int:
    """Apply the result of a write; returns the bytes of memory that it freed."""
    log, segment = written.write.log, written.write.segment
    if written.file is not None:
        handles.keep(segment, written.file, written.index_file)
    freed = segment.copied_to(written.end, written.crcs, written.tail_crc)
    log.close_index(segment)
    return freed


def _chunks(buffers: list[Buffer]) -> list[list[Buffer]]:
    """Runs of small buffers joined, so that write and CRC are not done one by one."""
    chunks: list[list[Buffer]] = []
    small: list[Buffer] = []
    small_bytes = 0
    for buffer in buffers:
        if len(buffer) >= _JOIN_BYTES:
            if small:
                chunks.append([b"".join(small)])
                small, small_bytes = [], 0
            chunks.append([buffer])
            continue
        small.append(buffer)
        small_bytes += len(buffer)
        if small_bytes >= _JOIN_BYTES:
            chunks.append([b"".join(small)])
            small, small_bytes = [], 0
    if small:
        chunks.append([b"".join(small)])
    return chunks


class Copier:
    """Accounts for batches that wait in memory, and copies them on request."""

    def __init__(
        self,
        files: FileSystem,
        worker: Worker,
        handles: Handles,
        metrics: Metrics,
        *,
        on_copied: Callable[[], None],
        on_error: Callable[[OSError], None],
    ) -> None:
        """`on_copied` is called after each job that freed memory, `on_error` after a failed one.

        After a failure the batches still wait.
        """
        self._files = files
        self._worker = worker
        self._handles = handles
        self._on_copied = on_copied
        self._on_error = on_error
        self._waiting: dict[Log, None] = {}
        self._running = False
        self._after: list[Callable[[OSError | None], None]] = []
        self.unsynced: dict[Segment, Log] = {}  # segments with writes since their last sync
        self._pending = metrics.counter("duramen_pending_bytes")
        self._copied = metrics.counter("duramen_copied_bytes_total")
        self.pending_bytes = 0

    def add(self, log: Log, size: int) -> None:
        """A batch of `size` bytes was appended to `log` in memory."""
        self._waiting[log] = None
        self.pending_bytes += size
        self._pending.value = self.pending_bytes

    def taken_back(self, size: int) -> None:
        """Batches of that many bytes need no copy any more."""
        self._freed(size)

    def finish(self, log: Log, segment: Segment) -> None:
        """`segment` gets no more batches: write the last entry of its index, even if all batches are written."""
        if segment.copied:
            self.unsynced[segment] = log

    def forget(self, log: Log) -> None:
        """`log` is deleted: its waiting batches are dropped."""
        self._waiting.pop(log, None)
        self._freed(sum(segment.size - segment.copied for segment in log.segments if not segment.in_memory))

    def _freed(self, size: int) -> None:
        self.pending_bytes -= size
        self._pending.value = self.pending_bytes

    @property
    def running(self) -> bool:
        """Whether a job is in progress."""
        return self._running

    def copy(self, after: Callable[[OSError | None], None] | None = None) -> None:
        """Copy all waiting batches now; then `after(None)`, or `after(error)`.

        During a job it does nothing; with `after`, it raises ValueError: the caller waits first.
        """
        if self._running:
            if after is not None:
                raise ValueError("a copy is under way")
            return
        writes = [write for log in self._waiting for write in plan_writes(log)]
        if not writes:
            if after is not None:
                # No exclusive job runs before `after` has been called: its work belongs to this copy.
                self._running = True
                self._worker.soon(lambda: self._done([], [], after))
            return
        self._running = True
        self._waiting.clear()
        files = self._files

        def job() -> list[CopiedBytes]:
            return _write_all(files, writes)

        def done(result: list[CopiedBytes] | BaseException) -> None:
            self._done(writes, result, after)

        self._worker.submit("disk", job, done)

    def _done(
        self,
        writes: list[SegmentWrite],
        result: list[CopiedBytes] | BaseException,
        after: Callable[[OSError | None], None] | None,
    ) -> None:
        self._running = False
        error: OSError | None = None
        if isinstance(result, BaseException):
            error = result if isinstance(result, OSError) else OSError(str(result))
            for write in writes:
                if not write.log.deleted:
                    self._waiting[write.log] = None
        else:
            for written in result:
                self._apply(written)
        if after is not None:
            after(error)
        if error is not None:
            self._on_error(error)
        else:
            self._on_copied()
        self._go_on(error)

    def _apply(self, written: CopiedBytes) -> None:
        if not written.write.log.deleted:  # `forget` has subtracted its bytes
            self._freed(self._take_over(written))

    def _take_over(self, written: CopiedBytes) -> int:
        freed = take_over(self._handles, written)
        self.unsynced[written.write.segment] = written.write.log
        self._copied.value += freed
        return freed

    def write_through(self, log: Log, buffer: Buffer, base_offset: int, next_offset: int, max_timestamp: int) -> None:
        """Write a batch directly to the file of the active segment (durability=os). Plain.

        Raises OSError if it could not be written; nothing has changed then.
        """
        segment = log.active
        with suppress(LogDamaged):  # a missing file is created again, as for a copy
            self._handles.open(segment)
        written = write_segment(self._files, _plan_write(log, segment, [buffer]))
        segment.append(buffer, base_offset, next_offset, max_timestamp)
        self._take_over(written)

    def alone(self, plan: Callable[[], Callable[[], T]], done: Callable[[T | BaseException], None]) -> None:
        """Run the job that `plan` makes, in the `disk` lane, while nothing is copied; then call `done`.

        `plan` is called once no copy is in progress, and none starts before the job's result.
        """
        if self._running:
            self._after.append(lambda _: self.alone(plan, done))
            return
        self._running = True

        def finished(result: T | BaseException) -> None:
            self._running = False
            done(result)
            self._on_copied()
            self._go_on(None)

        self._worker.submit("disk", plan(), finished)

    def _go_on(self, error: OSError | None) -> None:
        waiting, self._after = self._after, []
        for action in waiting:
            action(error)

    def when_idle(self, action: Callable[[OSError | None], None]) -> None:
        """Call `action` once no job is in progress."""
        if self._running:
            self._after.append(action)
        else:
            action(None)
