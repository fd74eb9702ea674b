"""The storage of one node: its logs, and how batches get into them.

Appends are taken in the order they come. One that does not fit (the WAL at its bound, memory at its limit, a
log between two durabilities) waits, and those behind it with it; it is refused only when the disk is full or
has failed. Nothing here waits: completions come back through the worker, times through `Deadlines`.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec

from duramen.base.deadlines import Deadlines
from duramen.base.errors import (
    BatchTooLarge,
    DuramenError,
    NodeStopping,
    StorageFailed,
    StorageFull,
    StreamNotFound,
)
from duramen.base.ids import LogId
from duramen.base.metrics import Metrics
from duramen.base.ports import Buffer, Clock, FileSystem, Worker
from duramen.codec.batch import Header, stamp
from duramen.storage.checkpoint import write_checkpoint
from duramen.storage.compacting import Compactor
from duramen.storage.directory import Directory
from duramen.storage.flushing import Flusher
from duramen.storage.frames import FrameType
from duramen.storage.handles import Handles
from duramen.storage.io import is_full, is_passing
from duramen.storage.log import NEVER, Log, LogConfig, LogKey
from duramen.storage.notes import FRAME_ROOM, Notes
from duramen.storage.reader import Blocked
from duramen.storage.records import LogChange, encode_change, encode_created, encode_takeover
from duramen.storage.recovery import Recovered, wal_salt
from duramen.storage.removal import Removal
from duramen.storage.reserving import give_back, is_reserved, reserve
from duramen.storage.scrubbing import Scrubber
from duramen.storage.takeovers import Takeover
from duramen.storage.upkeep import StoreLimits, Upkeep, segment_failed, trouble
from duramen.storage.wal import Wal

__all__ = ["AppendDone", "Store", "StoreLimits"]

Done = Callable[[DuramenError | None], None]

AppendDone = Callable[[int, DuramenError | None], None]
"""Called with (base offset, None) once acknowledged as the log's durability says, or with (-1, error)."""

T = TypeVar("T")

_MEMORY_SEGMENTS: Final = 8
_KEPT_AS_BYTES: Final = 16 * 1024
_RETRY_MS: Final = 100


class _Append(NamedTuple):
    log: Log
    batch: bytearray | memoryview
    head: Header
    epoch: int
    done: AppendDone | None


class Store:
    """Logs by key; append, read, delete, retain, stop."""

    def __init__(
        self,
        files: FileSystem,
        worker: Worker,
        clock: Clock,
        deadlines: Deadlines,
        metrics: Metrics,
        directory: Directory,
        recovered: Recovered,
        handles: Handles,
        *,
        node_id: int,
        limits: StoreLimits,
    ) -> None:
        """Blocking: begins a file of the WAL, and writes a checkpoint that stands there. Raises OSError."""
        self.directory_id = directory.id.bytes
        self.node_epoch = recovered.node_epoch
        self.next_log_id = recovered.next_log_id
        self._worker = worker
        self._clock = clock
        self._deadlines = deadlines
        self._node_id = node_id
        self._limits = limits
        self._handles = handles
        self.quarantine = handles.quarantine
        self.quarantine.begin(metrics)
        self.scrubber = Scrubber(files, worker, clock, deadlines, self.quarantine, self.each_log, metrics)
        self._logs: dict[LogKey, Log] = {log.key: log for log in recovered.logs.values()}
        self._queue: deque[_Append] = deque()
        self._held: dict[Log, deque[_Append]] = {}
        self._flush_due = False
        self._stopping = False
        self._wal = Wal(
            files, worker, clock, metrics,
            directory_id=directory.id.bytes, salt=wal_salt(directory.id),
            file_bytes=limits.wal_file_bytes, max_bytes=limits.wal_max_bytes, on_room=self._drain,
        )  # fmt: skip
        self._wal.start(recovered.wal_files, recovered.wal_generation)
        # From here on a WAL without a file of this generation has lost it.
        begun = msgspec.structs.replace(recovered.checkpoint, replay=self._wal.end)
        write_checkpoint(files, recovered.checkpoint_number + 1, begun)
        self._upkeep = Upkeep(
            files, worker, clock, deadlines, handles, metrics, self._wal, self,
            checkpoint_number=recovered.checkpoint_number + 1, limits=limits,
            on_room=self._drain, wanted=lambda: bool(self._queue),
        )  # fmt: skip
        self._copier = self._upkeep.copier
        self._notes = Notes(self._wal, worker, clock, deadlines, self._flush_soon)
        self._flusher = Flusher(files, worker, clock, deadlines, self._copier, segment_failed)
        self._removal = Removal(files, worker, handles, self._upkeep, self._notes)
        self.compactor = Compactor(
            files, worker, clock, deadlines, handles, metrics, self._upkeep, limits.compaction
        )  # fmt: skip
        self._waiting_gauge = metrics.counter("duramen_append_waiting")
        self._full_gauge = metrics.counter("duramen_storage_full")
        self._wal_full = metrics.counter("duramen_wal_full_total")
        self._logs_gauge = metrics.counter("duramen_logs")
        self._logs_gauge.value = len(self._logs)

    # -- logs ---------------------------------------------------------------------------------------

    def each_log(self) -> Iterable[Log]:
        """Every log that is not deleted."""
        return self._logs.values()

    def log(self, key: LogKey) -> Log | None:
        """The log of a partition, if it has ever been asked for."""
        return self._logs.get(key)

    def ensure(self, key: LogKey, config: LogConfig) -> Log:
        """The log of a partition, with that config; made where there is none. A new one costs nothing on disk."""
        log = self._logs.get(key)
        if log is None:
            log = Log(LogId(self.next_log_id), key, config, self._handles)
            self.next_log_id += 1
            self._logs[key] = log
            self._logs_gauge.value = len(self._logs)
        log.config = config
        if not log.written:
            log.set_durability(config.durability)
        return log

    def when_failed(self, action: Callable[[DuramenError], None]) -> None:
        """Have `action` called when writing ends until a restart."""
        self._wal.on_failure = action

    def name_leaders(self, leader_of: Callable[[int], int]) -> None:
        """Enter the leaders' ids that a start from the segments alone could not find, by epoch."""
        for log in self._logs.values():
            if log.takeovers.name_leaders(leader_of):
                log.version += 1

    def delete(self, log: Log, done: Callable[[DuramenError | None], None] | None = None) -> None:
        """Delete a log; its files go once that is durable. Readers in the middle of a slice finish it."""
        log.deleted = True
        self._logs.pop(log.key, None)
        self._logs_gauge.value = len(self._logs)
        for append in self._held.pop(log, ()):
            self._refuse(append, _deleted(log))
        self._removal.delete(log, done)

    # -- appending ----------------------------------------------------------------------------------

    def append(
        self, log: Log, batch: bytearray | memoryview, head: Header, epoch: int, done: AppendDone | None
    ) -> None:
        """Append a checked batch as the leader of `epoch`; `head` is its header. The batch is the store's from here on.

        Base offset and epoch are stamped in place. A repetition of an idempotent producer gets its first offset.
        """
        append = _Append(log, batch, head, epoch, done)
        if log in self._held:
            self._held[log].append(append)
        elif self._queue or not self._admits(append):
            if not self._queue:
                self._worker.soon(self._upkeep.make_room)
            self._queue.append(append)
            self._waiting_gauge.value = len(self._queue)
            self._wal_full.value += 1
            if self._upkeep.trouble is not None or self._wal.full is not None:
                self._worker.soon(self._drain)
        else:
            self._append(append)

    def _admits(self, append: _Append) -> bool:
        log, size = append.log, len(append.batch)
        if self._stopping or self._wal.failed is not None or size > self._wal.largest():
            return True  # to be refused
        if log.durability == "sync":
            pending = self._copier.pending_bytes
            if pending and pending + size > self._limits.pending_bytes:
                self._copier.copy()
                return False
            return self._wal_has_room(size + FRAME_ROOM)
        introduced = log.takeovers.latest_epoch >= append.epoch
        frameless = introduced and is_reserved(log, log.end_offset + append.head.records)
        return frameless or self._wal_has_room(FRAME_ROOM)

    def _wal_has_room(self, size: int) -> bool:
        if self._wal.room(size):
            return True
        if not self._wal.preparing:
            # At the bound: only a checkpoint lets files go, and a second one those that the first still needed.
            self._upkeep.checkpoint()
        return False

    def _refuse(self, append: _Append, error: DuramenError) -> None:
        if append.done is not None:
            append.done(-1, error)

    def _refusal(self, append: _Append) -> DuramenError | None:
        log = append.log
        if self._stopping:
            return NodeStopping("this node is stopping")
        if log.deleted:
            return _deleted(log)
        if self._wal.failed is not None:
            return self._wal.failed
        if log.failed:
            return StorageFailed(log.failed)
        if len(append.batch) > self._wal.largest():
            return BatchTooLarge(f"a batch of {len(append.batch)} bytes does not fit into wal.max.bytes")
        return None

    def _append(self, append: _Append) -> None:
        log, batch, head, epoch, done = append
        error = self._refusal(append)
        if error is not None:
            self._refuse(append, error)
            return
        if log.config.durability != log.durability:
            self._switch(append)
            return
        if head.producer_id >= 0:
            try:
                known = log.producers.check(head)
            except DuramenError as fenced:
                self._refuse(append, fenced)
                return
            if known is not None:
                if done is not None:
                    self._when_acknowledged(log, known, done)
                return
        base_offset = log.end_offset
        next_offset = base_offset + head.records
        stamp(batch, base_offset, epoch)
        if epoch > log.takeovers.latest_epoch:
            self._introduce(log, epoch)
        self._roll_if_due(log, len(batch), head, next_offset)
        if log.durability == "sync":
            kept = _kept(batch)
            until = self._wal.stage(FrameType.APPEND, log.id, kept)
            log.active.append(kept, base_offset, next_offset, head.max_timestamp)
            self._copier.add(log, len(batch))
            self._advance(log, head, base_offset, next_offset)
            self._wal.wait(until, None if done is None else partial(_acknowledge, done, base_offset), log, next_offset)
            self._upkeep.copy_later()
        elif not self._append_unlogged(append, base_offset, next_offset):
            return
        else:
            self._advance(log, head, base_offset, next_offset)
            self._appended_unlogged(log, base_offset, next_offset, done)
        self._flush_soon()

    def _append_unlogged(self, append: _Append, base_offset: int, next_offset: int) -> bool:
        log, batch, head, _, _ = append
        if log.durability == "memory":
            if not is_reserved(log, next_offset):
                log.introduced = self._wal.stage(FrameType.CHECKPOINT_ENTRY, log.id, reserve(log, next_offset))
            log.active.append(_kept(batch), base_offset, next_offset, head.max_timestamp)
            self._evict(log)
            return True
        try:
            self._copier.write_through(log, batch, base_offset, next_offset, head.max_timestamp)
        except OSError as error:
            if is_full(error):
                self._refuse(append, StorageFull("the disk is full: nothing was written"))
            elif is_passing(error):
                self._refuse(append, StorageFull(f"nothing was written: {error.strerror}"))
            else:
                log.failed = f"writing {log.active.path}.log failed ({error.strerror}); no writes until restart"
                self._refuse(append, StorageFailed(log.failed))
            return False
        except DuramenError as error:
            self._refuse(append, error)
            return False
        if log.config.flush_messages != NEVER or log.config.flush_ms != NEVER:
            self._flusher.appended(log, append.head.records)
        self._upkeep.checkpoint_later()
        return True

    def _appended_unlogged(self, log: Log, base_offset: int, next_offset: int, done: AppendDone | None) -> None:
        if log.introduced > self._wal.synced:
            # Without its epoch's frame a recovery does not believe it: nobody sees it before that is durable.
            acknowledge = None if done is None else partial(_acknowledge, done, base_offset)
            self._wal.wait(self._wal.end, acknowledge, log, next_offset)
            return
        log.synced_to(next_offset)
        if done is not None:
            done(base_offset, None)
        log.notify()

    def _advance(self, log: Log, head: Header, base_offset: int, next_offset: int) -> None:
        if head.producer_id >= 0:
            log.producers.add(head, base_offset, self._clock.wall_ms())
        log.end_offset = next_offset
        log.version += 1

    def _introduce(self, log: Log, epoch: int) -> None:
        """The frames that go before a log's first batch in an epoch; without them its segments belong to nobody."""
        if not log.written:
            self._wal.stage(FrameType.LOG_CREATED, log.id, encode_created(log.key, log.durability))
            log.written = True
        takeover = Takeover(epoch, self._node_id, log.end_offset)
        log.takeovers.add(takeover)
        log.introduced = self._wal.stage(FrameType.TAKEOVER, log.id, encode_takeover(*takeover))

    def _roll_if_due(self, log: Log, size: int, head: Header, next_offset: int) -> None:
        active, config = log.active, log.config
        segment_bytes = config.segment_bytes
        if log.durability == "memory":
            segment_bytes = min(segment_bytes, config.memory_max_bytes // _MEMORY_SEGMENTS)
        aged = active.first_timestamp >= 0 and head.max_timestamp - active.first_timestamp > config.segment_ms
        if active.size and (aged or not active.fits(size, next_offset, segment_bytes)):
            self._roll(log)

    def _roll(self, log: Log) -> None:
        """Begin a segment; the WAL says where, so that recovery has the same segments as the files are called."""
        if log.durability == "sync" and log.written:
            self._wal.stage(FrameType.ROLL, log.id, b"")
        self._copier.finish(log, log.active)
        log.roll()

    def _evict(self, log: Log) -> None:
        while len(log.segments) > 1 and log.size_bytes() > log.config.memory_max_bytes:
            log.drop_before(log.segments[1].base_offset)

    def _when_acknowledged(self, log: Log, base_offset: int, done: AppendDone) -> None:
        """`done` once what was appended at `base_offset` before is acknowledged."""
        if base_offset < log.synced_offset and log.introduced <= self._wal.synced:
            done(base_offset, None)
        else:
            self._wal.wait(self._wal.end, partial(_acknowledge, done, base_offset))
            self._flush_soon()

    def when_synced(self, done: Callable[[DuramenError | None], None]) -> None:
        """Call `done(None)` once everything appended so far is durable, or `done(error)` where it never will be."""
        self._wal.wait(self._wal.end, done)
        self._flush_soon()

    def _drain(self) -> None:
        """Go on with what waits, as far as there is room now."""
        refusal = self._wal.failed or self._upkeep.trouble or self._wal.full
        while self._queue:
            append = self._queue[0]
            if self._admits(append):
                self._queue.popleft()
                if append.log in self._held:
                    self._held[append.log].append(append)
                else:
                    self._append(append)
            elif refusal is not None:
                self._queue.popleft()
                self._refuse(append, refusal)
            else:
                break
        self._waiting_gauge.value = len(self._queue)
        self._full_gauge.value = 0 if self._upkeep.trouble is None and self._wal.full is None else 1
        if self._wal.full is not None:
            self._upkeep.retry_later()

    @property
    def wal_end(self) -> int:
        """The WAL position after everything appended."""
        return self._wal.end

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._worker.soon(self.flush)

    def flush(self) -> None:
        """Write what was appended since the last flush, all of it at once, and see to its sync."""
        self._flush_due = False
        self._wal.flush()
        self._upkeep.checkpoint_in_time()

    # -- durability ---------------------------------------------------------------------------------

    def _switch(self, append: _Append) -> None:
        """Change the log's durability at a roll, after everything before it is synced; appends wait for it."""
        log = append.log
        self._held[log] = deque([append])
        log.version += 1  # what is volatile no more belongs into the next checkpoint
        for segment in log.segments:
            if segment.volatile:
                segment.volatile = False
                log.version += 1  # what a checkpoint has to say of it is another
                self._copier.add(log, segment.size - segment.copied)
        # Both generations of the checkpoint have to know what only the segments hold: the WAL never had it.
        request = self._upkeep.checkpointer.request
        switched = partial(self._switched, log)
        request(lambda failure: request(switched) if failure is None else switched(failure))

    def _switched(self, log: Log, failure: OSError | None) -> None:
        if log.deleted:
            return
        if failure is not None:
            self._release_held(log, trouble("the durability cannot change now", failure))
            return
        change = LogChange(log.start_offset, log.end_offset, log.config.durability)

        holds: list[Callable[[], None]] = []

        def durable(error: DuramenError | None) -> None:
            for let_go in holds:
                let_go()
            if error is None and not log.deleted:
                self._copier.finish(log, log.active)
                log.set_durability(change.durability)
            self._release_held(log, error)

        hold = self._upkeep.checkpointer.hold
        self._notes.write(
            FrameType.CHECKPOINT_ENTRY, log, encode_change(change), durable, staged=lambda: holds.append(hold())
        )

    def _release_held(self, log: Log, error: DuramenError | None) -> None:
        for append in self._held.pop(log, ()):
            if error is not None:
                self._refuse(append, error)
            else:
                self.append(*append)

    # -- letting go ---------------------------------------------------------------------------------

    def enforce_retention(self, now_ms: int) -> None:
        """Let go what the logs' retention settings say, in logs that nobody touches too.

        There the active segment is closed once it is older than segment.ms, so that it can be let go or compacted.
        Not while stopping: the clean checkpoint may have been taken, and the next start looks at nothing else.
        """
        if self._stopping:
            return
        for log in list(self._logs.values()):
            if log in self._held:
                continue  # of one that is being cut, segments may come back in another form
            if log.active.size and 0 <= log.active.first_timestamp < now_ms - log.config.segment_ms:
                self._roll_untouched(log)
            self._removal.enforce_retention(log, now_ms)

    def _roll_untouched(self, log: Log) -> None:
        if not log.failed and self._wal.failed is None and self._wal.room(FRAME_ROOM):
            self._roll(log)
            log.version += 1
            self._flush_soon()

    def compact(self) -> None:
        """Compact the logs that are dirty enough, unless that is under way."""
        self.compactor.look(self.each_log)

    def delete_before(self, log: Log, offset: int, done: Done) -> None:
        """Let go of everything before `offset`, at most the high watermark; `done` once that is durable."""
        self._removal.delete_before(log, offset, done)

    def move_start(self, log: Log, offset: int) -> None:
        """Let go of everything before `offset`, which has all been copied; files go once that is durable."""
        self._removal.move_start(log, offset)

    def truncate(self, log: Log, end_offset: int, epoch: int, done: Done) -> None:
        """Cut a log to `end_offset`, as the leader of `epoch` wants it; `done` once that is durable and done.

        Appends to the log wait for it, and there is nobody in the middle of reading what is cut.
        """
        if log in self._held:
            again = partial(self.truncate, log, end_offset, epoch, done)
            self._deadlines.at(self._clock.monotonic_ms() + _RETRY_MS, again)
            return
        self._held[log] = deque()

        def cut(error: DuramenError | None) -> None:
            self._release_held(log, None)
            done(error)

        self._removal.truncate(log, end_offset, epoch, cut)

    def expire_producers(self, before_ms: int) -> None:
        """Forget idempotent producers that have written nothing since `before_ms`."""
        for log in self._logs.values():
            if len(log.producers) and log.producers.expire(before_ms):
                log.version += 1

    # -- reading ------------------------------------------------------------------------------------

    def soon(self, action: Callable[[], None]) -> None:
        """Do `action` once what is being handled now has been handled."""
        self._worker.soon(action)

    def run(self, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run a job that touches nothing but what it was handed off the caller's side; then `done`."""
        self._worker.submit("read", job, done)

    def unblock(self, blocked: Blocked, done: Callable[[BaseException | None], None]) -> None:
        """Do what a read waits for; then `done(None)`, or `done(error)` where the disk failed."""

        def finished(result: object) -> None:
            if isinstance(result, BaseException):
                done(result)
            else:
                blocked.apply(result)
                done(None)

        self._worker.submit("read", blocked.job, finished)

    # -- stopping -----------------------------------------------------------------------------------

    def stop(self, done: Callable[[OSError | None], None]) -> None:
        """Take no more appends, finish those taken, and write a clean checkpoint."""
        self._stopping = True
        self.compactor.stop()
        self._drain()
        self.flush()
        if self._wal.failed is not None:
            self._worker.soon(partial(done, OSError(str(self._wal.failed))))
            return
        give_back(self._logs.values())
        self._wal.wait(self._wal.end, lambda _: self._upkeep.checkpointer.request(done, clean=True))
        self._flush_soon()


def _acknowledge(done: AppendDone, base_offset: int, error: DuramenError | None) -> None:
    done(base_offset if error is None else -1, error)


def _kept(batch: bytearray | memoryview) -> Buffer:
    """A batch as it waits in memory: bytes, which garbage collection does not walk as it does views of requests."""
    return bytes(batch) if len(batch) <= _KEPT_AS_BYTES else batch


def _deleted(log: Log) -> StreamNotFound:
    return StreamNotFound(f"partition {log.key.partition} of stream {log.key.stream_id} is deleted")
