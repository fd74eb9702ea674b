"""Appends batches to logs: checks them and writes them in the order in which they arrive (`batch_writer`).

A batch waits if the write-ahead log is at its bound, memory is at its limit, or its log is held; later batches wait
behind it. It is refused only if the disk is full or has failed.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from duramen.base.deadlines import Deadlines
from duramen.base.errors import (
    BatchTooLarge,
    DuramenError,
    NodeStopping,
    NotLeader,
    OutOfOrderSequence,
    StorageFailed,
    StreamNotFound,
)
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock, FileSystem, Worker
from duramen.codec.batch import Header
from duramen.storage.append.batch_writer import BatchWriter
from duramen.storage.append.bulk import Bulk
from duramen.storage.append.queue import (
    AppendDone,
    AppendQueue,
    QueuedAction,
    QueuedAppend,
    QueuedGroup,
    TogetherDone,
    TurnAppend,
    Work,
)
from duramen.storage.append.reserved_offsets import is_reserved
from duramen.storage.condition import Condition
from duramen.storage.fullness import Fullness
from duramen.storage.log.log import Log
from duramen.storage.log.refused_batches import NEW_LEADER_MS, SENT_AGAIN, Refusals
from duramen.storage.maintenance.due import DueLogs
from duramen.storage.maintenance.scheduler import StoreLimits, Upkeep
from duramen.storage.truncation.durability_change import Switching
from duramen.storage.wal.control_frames import FRAME_ROOM, Notes
from duramen.storage.wal.wal import Wal

__all__ = ["Appends"]


class Appends:
    """Accepts batches, and through `notes` other WAL frames. Once it is `stopping`, batches are refused."""

    def __init__(
        self,
        files: FileSystem,
        worker: Worker,
        clock: Clock,
        deadlines: Deadlines,
        metrics: Metrics,
        wal: Wal,
        upkeep: Upkeep,
        condition: Condition,
        due: DueLogs,
        *,
        node_id: int,
        limits: StoreLimits,
    ) -> None:
        self.stopping = False
        self.fullness = Fullness(clock, deadlines, lambda: bool(upkeep.trouble or wal.full or wal.preparing))
        self.notes = Notes(wal, worker, clock, deadlines, self.flush_soon)
        self._worker = worker
        self._clock = clock
        self._wal = wal
        self._upkeep = upkeep
        self._copier = upkeep.copier
        self._bulk = Bulk(wal, self.flush_soon)
        self._waiting = AppendQueue()
        self._switching = Switching(upkeep, self.notes, self.release, self._waiting.holds_patient)
        self._limits = limits
        self._refusals = Refusals(clock)
        self._writer = BatchWriter(
            files, worker, clock, deadlines, wal, upkeep, due, self._bulk, self._refusals, node_id=node_id
        )
        self._flush_due = False
        self._refused_for: DuramenError | None = None  # the trouble with segments for which appends were refused
        self._condition = condition
        self._waiting_gauge = metrics.counter("duramen_append_waiting")
        self._full_gauge = metrics.counter("duramen_storage_full")
        self._wal_full = metrics.counter("duramen_wal_full_total")

    @property
    def waiting(self) -> bool:
        """Whether appends wait for room."""
        return bool(self._waiting.queue)

    @property
    def nothing_waits(self) -> bool:
        """Whether nothing waits for room, and no log is held."""
        return self._waiting.is_empty

    # -- logs that are held -------------------------------------------------------------------------

    def holds(self, log: Log) -> bool:
        """Whether appends to the log wait until it is released."""
        return self._waiting.holds(log)

    def hold(self, log: Log, begin: Callable[[DuramenError | None], None]) -> None:
        """Hold appends to the log, and call `begin(None)`: immediately, or in turn after an earlier hold.

        `begin(error)` if that never happens, because the log is deleted or the node stops.
        """
        self._take(QueuedAction(log, begin))

    def release(self, log: Log, error: DuramenError | None) -> None:
        """Continue appends to a held log, or refuse them with `error`."""
        waited, held = self.waiting, self._waiting.release(log)
        self._bulk.settle(log)
        # They go behind the appends that wait for room, so that appends from their callbacks queue up behind them.
        self._waiting.queue.extend(append for append in held if error is None or isinstance(append, QueuedAction))
        if error is not None:
            for append in held:
                if not isinstance(append, QueuedAction):
                    self._refuse(append, error)
        self.drain()
        if self.waiting and not waited:
            self._worker.soon(self._upkeep.make_room)

    def forget(self, log: Log) -> None:
        """The log is deleted: refuse its waiting appends."""
        self._bulk.fail(log, _deleted(log))
        for append in self._waiting.release(log):
            if isinstance(append, QueuedGroup):
                self._take(append)  # the batches for other logs continue
            else:
                self._refuse(append, _deleted(log))

    # -- taking in ----------------------------------------------------------------------------------

    def append(
        self,
        log: Log,
        batch: bytearray | memoryview,
        head: Header,
        epoch: int,
        done: AppendDone | None,
        *,
        ordered: bool = False,
        patient: bool = False,
    ) -> None:
        """Append a checked batch as the leader of `epoch`; `head` is its header. The store owns the batch from here on.

        Base offset and epoch are stamped in place. A duplicate of an idempotent producer gets its first offset. An
        `ordered` batch is accepted without these checks: its leader has made them. A `patient` batch waits for room.
        """
        append = QueuedAppend(log, batch, head, epoch, done, ordered, patient)
        if self._waiting.is_empty and self._admits(append):
            self._append(append)
        else:
            self._take(append)

    def append_all(
        self, log: Log, appends: Sequence[TurnAppend], epoch: int, done: Callable[[DuramenError | None], None]
    ) -> None:
        """Like `append` for each batch, one after another; the caller triggers the flush.

        If no batch needs a decision of its own, `done` is called in place of theirs, once all are acknowledged.
        """
        if not (self._takes_all(log) and self._writer.write_all(log, appends, epoch, self._limits.pending_bytes, done)):
            for one in appends:
                self.append(log, one.batch, one.head, epoch, one.done)

    def _takes_all(self, log: Log) -> bool:
        """Whether neither the node nor the log keeps batches from being appended."""
        return not (
            self._waiting.queue
            or self._waiting.held
            or self.stopping
            or self._wal.failed is not None
            or self.fullness.refusing
            or log.deleted
            or log.failed
            or log.switches
            or self._wal.full is not None
        )

    def append_together(self, batches: Iterable[tuple[Log, bytearray, Header]], epoch: int, done: TogetherDone) -> None:
        """Append checked batches to logs with durability=sync in one step, in this order, with nothing in between.

        After a crash a prefix of them is in the logs; readers see none or all. Batches for a log that is deleted by
        then are left out.
        """
        self._take(QueuedGroup(tuple(QueuedAppend(*batch, epoch, None) for batch in batches), done))

    def _take(self, append: Work) -> None:
        if self._waiting.held_back(append):
            return
        if self._waiting.goes_behind(append) or not self._has_room(append):
            self._wait(append)
        else:
            self._go(append)

    def _begin(self, turn: QueuedAction) -> None:
        if self.stopping:
            turn.begin(NodeStopping("this node is stopping"))
        elif turn.log.deleted:
            turn.begin(_deleted(turn.log))
        else:
            self._hold(turn.log)
            turn.begin(None)

    def _hold(self, log: Log, *first: QueuedAppend | QueuedGroup) -> None:
        self._waiting.hold(log, *first)
        self._waiting_gauge.value = len(self._waiting.queue)

    def _wait(self, append: Work) -> None:
        if not self.waiting:
            self._worker.soon(self._upkeep.make_room)
        self._waiting.queue.append(append)
        self._waiting_gauge.value = len(self._waiting.queue)
        self._wal_full.value += 1
        if self._upkeep.trouble is not None or self._wal.full is not None:
            self._worker.soon(self.drain)

    def _has_room(self, append: Work) -> bool:
        if isinstance(append, QueuedAppend):
            return self._admits(append)
        if isinstance(append, QueuedAction):
            return True
        return self.stopping or self._wal.failed is not None or self._wal_has_room(_room(append))

    def _go(self, append: Work) -> None:
        if isinstance(append, QueuedAppend):
            self._append(append)
        elif isinstance(append, QueuedAction):
            self._begin(append)
        else:
            self._append_together(append)

    def _admits(self, append: QueuedAppend) -> bool:
        log, size, wal = append.log, len(append.batch), self._wal
        if self.stopping or wal.failed is not None or size > wal.largest_bytes:
            return True  # it is refused there
        # On a full disk, the rest of the WAL is reserved for deletions and for the metadata.
        if not append.patient and (wal.full is not None or (append.ordered and self._upkeep.full is not None)):
            return False
        if log.durability == "sync" or log.in_bulk:
            pending = 0 if append.patient else self._copier.pending_bytes
            if pending and pending + size > self._limits.pending_bytes:
                self._copier.copy()
                return False
            return self._wal_has_room(size + FRAME_ROOM if log.durability == "sync" else FRAME_ROOM)
        introduced = log.takeovers.latest_epoch >= append.epoch
        frameless = introduced and is_reserved(log, log.end_offset + append.head.records)
        return frameless or self._wal_has_room(FRAME_ROOM)

    def _wal_has_room(self, size: int) -> bool:
        if self._wal.room(size):
            return True
        if not self._wal.preparing and self._upkeep.trouble is None and self._wal.full is None:
            # At the limit only a checkpoint releases WAL files, and a second one those that the first still needed. On
            # a full disk the next retry makes it: waiting appends would request it again and again.
            self._upkeep.checkpoint()
        return False

    def _refuse(self, append: Work, error: DuramenError) -> None:
        self.fullness.refused(error)
        if isinstance(append, QueuedGroup):
            append.done([], error)
        elif isinstance(append, QueuedAction):
            append.begin(error)
        else:
            if isinstance(error, SENT_AGAIN) and not append.ordered:
                self.note_refused(append.log, append.head, error)
            behind = self._waiting.take_ordered(append.log) if append.ordered else []
            for refused in [append, *behind]:  # a leader has assigned their offsets: none is written without the others
                if refused.done is not None:
                    refused.done(-1, error)

    def note_refused(self, log: Log, head: Header, error: DuramenError | None = None) -> None:
        """A batch for the log is refused, and its producer resends it: later batches are refused until then."""
        self._refusals.note(log.key, head, error)

    def _refusal(self, append: QueuedAppend) -> DuramenError | None:
        log = append.log
        if self.stopping:
            return NodeStopping("this node is stopping")
        if log.deleted:
            return _deleted(log)
        if self._wal.failed is not None:
            return self._wal.failed
        if log.failed:
            return StorageFailed(log.failed)
        if log.replicated is not None and not append.ordered:
            refusal = log.replicated.refusal(append.epoch)
            if refusal is not None:
                return refusal
        if len(append.batch) > self._wal.largest_bytes:
            return BatchTooLarge(f"a batch of {len(append.batch)} bytes does not fit into wal.max.bytes")
        return None

    def _append_together(self, together: QueuedGroup) -> None:
        appends = [one for one in together.appends if not one.log.deleted]
        if self.stopping or self._wal.failed is not None:
            self._refuse(together, self._wal.failed or NodeStopping("this node is stopping"))
            return
        for one in appends:
            one.log.bulk = False
            if one.log.wanted_durability != one.log.durability:
                self._hold(one.log, together)
                self._switching.switch(one.log)
                return
        self._wal.keep_together(_room(together))
        offsets = []
        for one in together.appends:
            offsets.append(-1 if one.log.deleted else one.log.end_offset)
            self._append(one)
        self._wal.wait(self._wal.end, partial(_together_done, together.done, offsets))
        self.flush_soon()

    def _append(self, append: QueuedAppend) -> None:
        log, head = append.log, append.head
        error = self._refusal(append)
        if error is not None:
            self._refuse(append, error)
            return
        if log.switches:
            self._hold(log, append)
            self._switching.switch(log)
            return
        if head.producer_id >= 0 and not append.ordered and self._is_known(append):
            return
        error = self._writer.write(append)
        if error is not None:
            self._refuse(append, error)
            return
        if self.fullness.refusing:
            self.fullness.taken()
        self.flush_soon()

    def _is_known(self, append: QueuedAppend) -> bool:
        """Whether an idempotent producer's batch must not be appended: it is a duplicate, or is refused."""
        try:
            if self._refusals:
                self._refusals.check(append.log.key, append.head)
            known = append.log.producers.check(append.head)
        except OutOfOrderSequence as gap:
            self._refuse(append, self._for_gap(append.log, gap))
            return True
        except DuramenError as fenced:
            self._refuse(append, fenced)
            return True
        if known is None:
            return False
        if self._refusals:
            self._refusals.taken(append.log.key, append.head)
        if append.done is not None:
            self._when_acknowledged(append.log, known, append.done)
        return True

    def _for_gap(self, log: Log, gap: OutOfOrderSequence) -> DuramenError:
        """The error for a sequence gap: a new leader does not know the batches that the previous leader refused."""
        since_ms = None if log.replicated is None else log.replicated.leads_since_ms
        if since_ms is None or self._clock.monotonic_ms() - since_ms >= NEW_LEADER_MS:
            return gap
        return NotLeader(f"{gap}; the leader is new, and the batches before it may have been refused by another")

    def roll(self, log: Log) -> None:
        """Roll the active segment of the log."""
        self._writer.roll(log)

    def _when_acknowledged(self, log: Log, base_offset: int, done: AppendDone) -> None:
        """Call `done` once the earlier append at `base_offset` is acknowledged."""
        if base_offset < log.synced_offset and log.introduced <= self._wal.synced:
            done(base_offset, None)
        else:
            self._wal.wait_appended(self._wal.end, done, base_offset)
            self.flush_soon()

    def when_synced(self, done: Callable[[DuramenError | None], None]) -> None:
        """Call `done(None)` once everything appended so far is durable, or `done(error)` if it never will be."""
        self._wal.wait(self._wal.end, done)
        self.flush_soon()

    def when_durable(self, log: Log, done: Callable[[DuramenError | None], None]) -> None:
        """Call `done(None)` once everything in the log is durable, or `done(error)` if it never will be."""

        def logged(error: DuramenError | None) -> None:
            if error is None and log.synced_offset < log.end_offset and log.in_bulk:
                self._bulk.wait(log, log.end_offset, done)
            else:
                done(error)

        if log.failed:
            done(StorageFailed(log.failed))
        elif log.synced_offset == log.end_offset:
            done(None)
        else:
            self.when_synced(logged)

    def drain(self) -> None:
        """Continue waiting appends, as far as there is room."""
        refusal = self._wal.failed or self._upkeep.trouble or self._wal.full
        waiting = self._waiting
        while waiting.queue:
            append = waiting.queue[0]
            if self._has_room(append):
                waiting.queue.popleft()
                if not waiting.held_back(append):
                    self._go(append)
            elif refusal is None:
                break
            elif isinstance(append, QueuedAppend) and append.patient:
                for refused in waiting.take_refused():
                    self._refuse(refused, refusal)
                break
            else:
                self._refused_for = self._upkeep.trouble
                waiting.queue.popleft()
                self._refuse(append, refusal)
        self._look_at_room()

    def _look_at_room(self) -> None:
        """Update the storage condition; with broken segments it stays writable until an append has to be refused."""
        if self._refused_for is not self._upkeep.trouble:
            self._refused_for = None
        problem = self._wal.failed or self._wal.full or self._upkeep.full or self._refused_for
        self._condition.update(problem)
        waiting = self._waiting
        self._waiting_gauge.value = len(waiting.queue)
        self._full_gauge.value = 0 if self._upkeep.trouble is None and self._wal.full is None else 1
        if self._wal.full is not None:
            self._upkeep.retry_later()

    def flush_soon(self) -> None:
        """Flush after the present event loop work."""
        if not self._flush_due:
            self._flush_due = True
            self._worker.soon(self.flush)

    def flush(self) -> None:
        """Write all appends since the last flush at once, and start their sync."""
        self._flush_due = False
        self._wal.flush()
        self._upkeep.checkpoint_in_time()


def _together_done(done: TogetherDone, offsets: list[int], error: DuramenError | None) -> None:
    done(offsets if error is None else [], error)


def _room(together: QueuedGroup) -> int:
    return sum(len(one.batch) + FRAME_ROOM for one in together.appends)


def _deleted(log: Log) -> StreamNotFound:
    return StreamNotFound(f"partition {log.key.partition} of stream {log.key.stream_id} is deleted")
