"""The storage of one node: its logs and all operations on them; the interface to the broker.

Nothing here waits: completions come through the worker, times through `Deadlines`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError, StorageFull
from duramen.base.ids import LogId
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock, FileSystem, Worker
from duramen.codec.batch import Header
from duramen.storage.append.append import Appends
from duramen.storage.append.leaderships import drop_empty_leaderships, forget_producers, introduce
from duramen.storage.append.queue import AppendDone, TogetherDone, TurnAppend
from duramen.storage.append.reserved_offsets import give_back
from duramen.storage.checkpoint import write_checkpoint
from duramen.storage.condition import Condition
from duramen.storage.directory import DataDirectory
from duramen.storage.log.log import Log, LogConfig, LogKey
from duramen.storage.log.producers import NO_ID
from duramen.storage.maintenance.compaction import Compactor
from duramen.storage.maintenance.delayed_delete import Lingering
from duramen.storage.maintenance.due import DueLogs
from duramen.storage.maintenance.repair import Repairer
from duramen.storage.maintenance.scheduler import StoreLimits, Upkeep
from duramen.storage.maintenance.scrubber import Scrubber
from duramen.storage.planning.retention import Late
from duramen.storage.recovery.recovery import Recovered, wal_salt
from duramen.storage.segment.handles import Handles
from duramen.storage.segment.reader import Blocked
from duramen.storage.truncation.removal import Removal
from duramen.storage.wal.control_frames import FRAME_ROOM
from duramen.storage.wal.wal import Wal

__all__ = ["AppendDone", "Store", "StoreLimits", "TogetherDone", "TurnAppend"]

Done = Callable[[DuramenError | None], None]

T = TypeVar("T")


class Store:
    """Logs by key; append, read, delete, retain, stop."""

    def __init__(
        self,
        files: FileSystem,
        worker: Worker,
        clock: Clock,
        deadlines: Deadlines,
        metrics: Metrics,
        directory: DataDirectory,
        recovered: Recovered,
        handles: Handles,
        *,
        node_id: int,
        limits: StoreLimits,
    ) -> None:
        """Blocking: starts a file of the WAL, and writes a checkpoint at its start. Raises OSError."""
        self.files = files
        self.directory_id = directory.id.bytes
        self.node_epoch = recovered.node_epoch
        self.next_log_id = recovered.next_log_id
        self.damaged = recovered.damaged
        """Whether damage may have cost synced records, and the cluster does not know it yet."""
        self.metadata_damaged = recovered.metadata_damaged
        """Whether it may have cost entries of the metadata log that were not fetched again yet."""
        self._worker = worker
        self._handles = handles
        self.quarantine = handles.quarantine
        self.quarantine.begin(metrics)
        self.scrubber = Scrubber(files, worker, clock, deadlines, self.quarantine, self.each_log, metrics)
        self._logs: dict[LogKey, Log] = {log.key: log for log in recovered.logs.values()}
        self._due = DueLogs(self._logs.values())
        self._compacted: dict[Log, None] = {log: None for log in self._logs.values() if log.obsolete}
        self._producing: dict[Log, None] = {}  # those with idempotent producers
        self._wal = Wal(
            files, worker, clock, metrics,
            directory_id=directory.id.bytes, salt=wal_salt(directory.id),
            file_bytes=limits.wal_file_bytes, max_bytes=limits.wal_max_bytes, on_room=self._go_on,
        )  # fmt: skip
        self.flush_early: Final = self._wal.flush_early
        """Between requests of one turn: let the disk start with their appends, if that pays."""
        self.condition = Condition(worker)
        self._wal.on_failure = self.condition.update
        self._wal.start(recovered.wal_files, recovered.wal_generation)
        self._upkeep = Upkeep(
            files, worker, clock, deadlines, handles, metrics, self._wal, self,
            checkpoint_number=recovered.checkpoint_number + 1, limits=limits,
            on_room=self._go_on, wanted=lambda: self._appends.waiting,
        )  # fmt: skip
        self._appends = Appends(
            files, worker, clock, deadlines, metrics, self._wal, self._upkeep, self.condition, self._due,
            node_id=node_id, limits=limits,
        )  # fmt: skip
        # From here on a WAL without a file of this generation has lost it.
        begun = msgspec.structs.replace(recovered.checkpoint, replay=self._wal.end)
        write_checkpoint(files, recovered.checkpoint_number + 1, begun)
        lingering = Lingering(clock, deadlines)
        self._removal = Removal(files, worker, clock, handles, self._upkeep, self._appends.notes, lingering)
        self.compactor = Compactor(files, worker, clock, deadlines, handles, metrics, self._upkeep, limits.compaction)
        self.repairer = Repairer(files, self._upkeep.copier, self.quarantine, metrics)
        self._logs_gauge = metrics.counter("duramen_logs")
        self._logs_gauge.value = len(self._logs)

    def _go_on(self) -> None:
        self._appends.drain()

    # -- logs ---------------------------------------------------------------------------------------

    def each_log(self) -> Iterable[Log]:
        """Every log that is not deleted."""
        return self._logs.values()

    def log(self, key: LogKey) -> Log | None:
        """The log of a partition, if `ensure` has created it."""
        return self._logs.get(key)

    def ensure(self, key: LogKey, config: LogConfig, *, forgotten_id: int = NO_ID) -> Log:
        """The log of a partition, with that config; created if missing. A new one costs nothing on disk.

        Before a new log, producers up to `forgotten_id` may have written to its partition.
        """
        log = self._logs.get(key)
        if log is None:
            log = self._logs[key] = Log(LogId(self.next_log_id), key, config, self._handles)
            log.producers.forget_up_to(forgotten_id)
            self.next_log_id += 1
            self._logs_gauge.value = len(self._logs)
            self.configure(log, config)
            return log
        self.configure(log, config)
        if not log.written:
            log.set_durability(log.wanted_durability)
        return log

    def configure(self, log: Log, config: LogConfig) -> None:
        """Set the config of the log."""
        log.config = config
        if config.compact:
            self._compacted[log] = None
        if log.written:
            self._due.changed[log] = None

    def when_failed(self, action: Callable[[DuramenError], None]) -> None:
        """Call `action` when writes end until a restart."""

        def changed(problem: DuramenError | None) -> None:
            if problem is not None and not isinstance(problem, StorageFull):
                action(problem)

        self.condition.watch(changed)

    def when_full(self, on_full: Callable[[StorageFull, int], None], on_room: Callable[[], None]) -> None:
        """Call `on_full` when the first append is refused because the disk is full, `on_room` when appends continue.

        `on_full` gets the reason, and the bytes of records in memory that wait for space in their segments.
        """
        fullness = self._appends.fullness
        fullness.on_full = lambda error: on_full(error, self._upkeep.copier.pending_bytes)
        fullness.on_room = on_room

    def when_late(self, action: Callable[[Log, Late], None]) -> None:
        """Call `action` when retention deletes records that were already too old at their write."""
        self._removal.on_late = action

    def name_leaders(self, leader_of: Callable[[int], int]) -> None:
        """Set the leader ids that a start from segments alone could not find, by epoch."""
        for log in self._logs.values():
            if log.takeovers.name_leaders(leader_of):
                log.version += 1

    def delete(self, log: Log, done: Callable[[DuramenError | None], None] | None = None) -> None:
        """Delete a log; its files are removed once that is durable. Readers in the middle of a slice finish it."""
        log.deleted = True
        self._logs.pop(log.key, None)
        self._logs_gauge.value = len(self._logs)
        self._appends.forget(log)
        self._removal.delete(log, done)

    # -- appending ----------------------------------------------------------------------------------

    def append(
        self,
        log: Log,
        batch: bytearray | memoryview,
        head: Header,
        epoch: int,
        done: AppendDone | None,
        *,
        patient: bool = False,
    ) -> None:
        """Append a checked batch as the leader of `epoch`; `head` is its header. The store owns the batch from here on.

        Base offset and epoch are stamped in place. A duplicate of an idempotent producer gets its first offset. A
        `patient` batch waits for room on a full disk, others are refused.
        """
        self._appends.append(log, batch, head, epoch, done, patient=patient)

    def append_all(
        self, log: Log, appends: Sequence[TurnAppend], epoch: int, done: Callable[[DuramenError | None], None]
    ) -> None:
        """Like `append` for each batch, one after another; `flush` must follow.

        If no batch needs a decision of its own, `done` is called in place of theirs, once all are acknowledged.
        """
        self._appends.append_all(log, appends, epoch, done)

    def append_ordered(self, log: Log, batch: bytearray | memoryview, head: Header, done: AppendDone | None) -> None:
        """Append a batch whose offset another node, as the leader of its epoch, has assigned: unchanged.

        `head` is its header; its offsets count, including those of compacted records. It is the next batch, of an epoch
        that `follow` has recorded.
        """
        if head.records != head.last_offset_delta + 1:
            head = head._replace(records=head.last_offset_delta + 1)
        self._appends.append(log, batch, head, head.leader_epoch, done, ordered=True)

    def take_in_bulk(self, log: Log, *, bulk: bool) -> None:
        """Announce whether `append_ordered` will bring much data: then it is written once, and synced in pieces."""
        log.bulk = bulk
        if not log.written:
            log.set_durability(log.wanted_durability)

    def append_together(self, batches: Iterable[tuple[Log, bytearray, Header]], epoch: int, done: TogetherDone) -> None:
        """Append checked batches to logs with durability=sync in one step, in this order, with nothing in between.

        After a crash a prefix of them is in the logs; readers see none or all. Batches for a log that is deleted by
        then are left out.
        """
        self._appends.append_together(batches, epoch, done)

    def follow(self, log: Log, epoch: int, leader_id: int, done: Done) -> None:
        """Record that batches of `epoch`, ordered by `leader_id`, come next, unless that is recorded already.

        Later appends wait for it. If nothing can be written, `done` and the appends get an error.
        """

        def begin(error: DuramenError | None) -> None:
            if error is not None:
                done(error)
            else:
                introduce(self._appends.notes, log, epoch, leader_id, entered)

        def entered(error: DuramenError | None) -> None:
            self._appends.release(log, error)
            done(error)

        self._appends.hold(log, begin)

    def forget_producers(self, log: Log, forgotten_id: int) -> None:
        """Producers up to that id may have written to the log's partition without being known here.

        That is durable before later appends.
        """

        def begin(error: DuramenError | None) -> None:
            if error is None:
                forget_producers(self._appends.notes, log, partial(self._appends.release, log))

        if log.producers.forget_up_to(forgotten_id):
            log.version += 1
            self._appends.hold(log, begin)

    def bound_forgotten(self, log: Log, highest_id: int) -> None:
        """Note that no higher producer id was ever allocated: for a log with unknown forgotten producers."""
        if log.producers.bound_forgotten(highest_id):
            log.version += 1

    def note_refused(self, log: Log, head: Header, error: DuramenError | None = None) -> None:
        """A batch for the log was refused earlier, and its producer resends it: see `refusals`."""
        self._appends.note_refused(log, head, error)

    def when_appended(self, log: Log, done: Done) -> None:
        """Call `done(None)` once all earlier appends are in the log or refused.

        `done` gets StreamNotFound or NodeStopping if that never happens.
        """

        def begin(error: DuramenError | None) -> None:
            if error is None:
                self._appends.release(log, None)
            done(error)

        self._appends.hold(log, begin)

    def when_settled(self, log: Log, done: Done) -> None:
        """Call `done(None)` once all earlier appends and truncations are complete, and the log is durable.

        `done` gets the reason if that never happens.
        """

        def appended(error: DuramenError | None) -> None:
            if error is not None:
                done(error)
            else:
                self._appends.when_durable(log, done)

        if self._appends.nothing_waits:
            appended(None)
        else:
            self.when_appended(log, appended)

    def drop_empty_leaderships(self, log: Log) -> None:
        """Drop leaderships without records in the log."""
        drop_empty_leaderships(log)

    def when_synced(self, done: Done) -> None:
        """Call `done(None)` once everything appended so far is durable, or `done(error)` if it never will be."""
        self._appends.when_synced(done)

    def sync_all(self, done: Callable[[OSError | None], None]) -> None:
        """Call `done(None)` once everything written so far is on disk, also of logs with durability=os; or an error."""
        self._upkeep.checkpointer.request(done)

    def flush(self) -> None:
        """Write all appends since the last flush at once, and start their sync."""
        self._appends.flush()

    @property
    def crowded(self) -> bool:
        """Whether many appends wait for a slow disk: see `flush_early`."""
        return self._wal.crowded

    def after_release(self, action: Callable[[], None]) -> None:
        """Run `action` soon: during the completions of a sync, after all of them."""
        self._wal.after_release(action)

    @property
    def wal_end(self) -> int:
        """The WAL position after everything appended."""
        return self._wal.end

    # -- letting go ---------------------------------------------------------------------------------

    def enforce_retention(self, now_ms: int) -> None:
        """Delete records according to retention settings, also in idle logs.

        In those the active segment is closed once it is older than segment.ms, so that it can be deleted or compacted.
        Not while stopping: the clean checkpoint may be written, and the next start reads nothing else.
        """
        if self._appends.stopping:
            return
        self._note_producing()
        for log in self._due.take(now_ms):
            if self._appends.holds(log):
                self._due.changed[log] = None
                continue  # a truncation may replace its segments
            if log.active.size and 0 <= log.active.first_timestamp < now_ms - log.roll_ms:
                self._roll_untouched(log)
            self._removal.enforce_retention(log, now_ms)
            self._due.looked_at(log)

    def _roll_untouched(self, log: Log) -> None:
        if not log.failed and self._wal.failed is None and self._wal.room(FRAME_ROOM):
            self._appends.roll(log)
            log.version += 1
            self._appends.flush_soon()

    def compact(self) -> None:
        """Compact the logs that are dirty enough, unless that is in progress."""
        self.compactor.look(self._to_compact)

    def _to_compact(self) -> list[Log]:
        for log in [log for log in self._compacted if log.deleted or not (log.config.compact or log.obsolete)]:
            del self._compacted[log]
        return sorted(self._compacted, key=lambda log: log.id)

    def delete_before(self, log: Log, offset: int, done: Done, *, patient: bool = False) -> None:
        """Delete everything before `offset`, at most the high watermark; calls `done` once that is durable.

        A `patient` deletion waits for room on a full disk, others are refused.
        """
        self._removal.delete_before(log, offset, done, patient=patient)

    def move_start(self, log: Log, offset: int) -> None:
        """Delete everything before `offset`, which must be copied; files are removed once that is durable."""
        self._removal.move_start(log, offset)

    def truncate(self, log: Log, end_offset: int, epoch: int, done: Done) -> None:
        """Truncate a log to `end_offset`, for the leader of `epoch`; calls `done` once that is durable and complete.

        Later appends wait for it, and no reader may be reading truncated records. On a full disk it waits for room.
        `done` gets StreamNotFound or NodeStopping, without a truncation, if that never happens.
        """

        def begin(error: DuramenError | None) -> None:
            if error is not None:
                done(error)
            else:
                self._removal.truncate(log, end_offset, epoch, cut)

        def cut(error: DuramenError | None) -> None:
            self._appends.release(log, None)
            done(error)

        self._appends.hold(log, begin)

    def expire_producers(self, before_ms: int) -> None:
        """Forget idempotent producers without writes since `before_ms`."""
        self._note_producing()
        for log in list(self._producing):
            if log.producers.expire(before_ms):
                log.version += 1
            if log.deleted or not len(log.producers):
                del self._producing[log]

    def _note_producing(self) -> None:
        self._producing.update(dict.fromkeys(log for log in self._due.changed if len(log.producers)))

    # -- reading ------------------------------------------------------------------------------------

    def soon(self, action: Callable[[], None]) -> None:
        """Run `action` after the present event loop work."""
        self._worker.soon(action)

    def run(self, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run a job that uses only its arguments off the caller's thread; then call `done`."""
        self._worker.submit("read", job, done)

    def unblock(self, blocked: Blocked, done: Callable[[BaseException | None], None]) -> None:
        """Do the work that a read waits for; then `done(None)`, or `done(error)` if the disk failed."""

        def finished(result: object) -> None:
            if isinstance(result, BaseException):
                done(result)
            else:
                blocked.apply(result)
                done(None)

        self._worker.submit("read", blocked.job, finished)

    # -- stopping -----------------------------------------------------------------------------------

    def stop(self, done: Callable[[OSError | None], None]) -> None:
        """Refuse new appends, finish accepted ones, and write a clean checkpoint."""
        self._appends.stopping = True
        self.compactor.stop(partial(self._end, done))

    def _end(self, done: Callable[[OSError | None], None]) -> None:
        self._upkeep.end()
        self._appends.drain()
        self._appends.flush()
        failure = self._wal.failed or self._upkeep.unfinished
        if failure is not None:
            self._worker.soon(partial(done, OSError(str(failure))))
            return
        self._removal.end()
        give_back(self._logs.values())
        self._wal.wait(self._wal.end, lambda _: self._upkeep.checkpointer.request(done, clean=True))
        self._appends.flush_soon()
