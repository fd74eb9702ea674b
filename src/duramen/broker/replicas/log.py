"""The log of a replica on the node's storage: writes, truncations, restarts and reads for its state machine."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from duramen.base.errors import DuramenError, StorageFailed
from duramen.base.ports import Buffer
from duramen.broker.replicas.batches import NO_EPOCH, bytes_of, empty
from duramen.broker.replicas.bulk import BULK, BulkBytes
from duramen.codec.batch import header
from duramen.replication.messages import ReplicaBatch
from duramen.storage.followed_log import FollowedLog
from duramen.storage.log.log import Log
from duramen.storage.log.producers import ANY_ID, NO_ID
from duramen.storage.segment.reader import Blocked, Slice
from duramen.storage.store import Store

__all__ = ["ReplicaLog"]

Done = Callable[[DuramenError | None], None]
ReadDone = Callable[[list[Buffer] | DuramenError], None]

_PIECE_BYTES: Final = 1 << 20


class ReplicaLog:
    """A log that follows others, and is read by them."""

    def __init__(self, store: Store, log: Log, bulk: BulkBytes = BULK) -> None:
        self._store = store
        self._log = log
        self._bulk = bulk
        self._followed = FollowedLog(store, log)
        self._start = log.start_offset  # where it is to begin once that is synced
        self.floor: Callable[[], int | None] = lambda: None
        """From here on records are kept even if the leader deletes them: the state beside the log may need them."""

    def end(self) -> None:
        """Start no more operations: those under way end as if the process had ended."""
        self._followed.end()

    # -- writing ------------------------------------------------------------------------------------

    def came(self, batches: Sequence[ReplicaBatch], size: int, high_watermark: int) -> None:
        """An answer had these batches, of so many bytes in all, of a log that is committed up to there."""
        self._take_in_bulk(bulk=self._bulk.is_much(batches, size, high_watermark, bulk=self._log.bulk))

    def forget_producers(self, forgotten_id: int | None) -> None:
        """The followed log has forgotten producers up to that id; None: unknown.

        Then this one may forget them, at its start: it has no records yet that name them.
        """
        log = self._log
        if forgotten_id is None:
            forgotten_id = ANY_ID if log.start_offset == log.end_offset else NO_ID
        if forgotten_id > log.producers.forgotten_id:
            self._store.forget_producers(log, forgotten_id)

    def lead(self) -> None:
        """Batches are ordered here from now on."""
        self._take_in_bulk(bulk=False)

    def _take_in_bulk(self, *, bulk: bool) -> None:
        if self._log.bulk != bulk:
            self._store.take_in_bulk(self._log, bulk=bulk)

    def append(self, batch: ReplicaBatch, leader_id: int, done: Done) -> None:
        """Write a batch that `leader_id` has ordered to the end, as it is; `done(None)` once it is synced."""
        self._followed.enter(batch.epoch, leader_id)
        data = bytes_of(batch)
        self._store.append_ordered(self._log, data, header(data), lambda _, error: done(error))

    def cut(self, end_offset: int, done: Done) -> None:
        """Delete records below an offset; `done(None)` once that is on disk, and everything before it synced."""
        self._followed.cut(end_offset, done)

    def restart(self, start_offset: int, committed_offset: int, done: Done) -> None:
        """Recreate the log at `start_offset`, empty; `done(None)` once that is on disk.

        Committed records stay until then. After them come empty batches without an epoch, up to the start, and all of
        that is deleted: a start that finds them repeats it. A log that ends before the start is not truncated: its
        records may be committed although this node does not know that.
        """
        log = self._log

        def kept_offset() -> int:
            over = log.end_offset > max(start_offset, log.start_offset)
            return max(committed_offset, log.start_offset) if over else log.end_offset

        def fill(filled: Done) -> None:
            if log.replicated is not None:
                log.replicated.begins_anew(start_offset)
            filler = list(empty(log.end_offset, start_offset, NO_EPOCH))
            if not filler:
                filled(None)
                return
            for batch in filler[:-1]:
                self.append(batch, -1, lambda _: None)
            self.append(filler[-1], -1, filled)

        self._start = start_offset
        self._followed.restart(start_offset, kept_offset, fill, done)

    def start_at(self, offset: int) -> None:
        """Delete records below an offset, once all of them are synced."""
        self._start = max(self._start, offset)
        self.let_go()

    def let_go(self) -> None:
        """More is synced: run the operations that waited for it."""
        floor = self.floor()
        start = self._start if floor is None else min(self._start, floor)
        if self._log.start_offset < start <= self._log.synced_offset:
            self._store.delete_before(self._log, start, lambda _: None)

    # -- reading ------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, done: ReadDone) -> None:
        """The bytes of whole batches from `offset` on, synced or not, from memory or the file.

        At least one if there is any, then as many as fit. `done` gets OffsetOutOfRange, LogDamaged, StorageFailed.
        """
        try:
            plan = self._log.plan_written(offset, max_bytes)
        except DuramenError as error:
            done(error)
            return
        if isinstance(plan, Slice):
            self._collect(plan, [], done)
        elif isinstance(plan, Blocked):
            self._store.unblock(plan, partial(self._again, partial(self.read, offset, max_bytes, done), done))
        else:
            done([])

    def _collect(self, slice_: Slice, found: list[Buffer], done: ReadDone) -> None:
        while len(slice_):
            try:
                piece = slice_.piece(_PIECE_BYTES)
            except DuramenError as error:
                done(error)
                return
            if isinstance(piece, Blocked):
                self._store.unblock(piece, partial(self._again, partial(self._collect, slice_, found, done), done))
                return
            found += piece
        done(found)

    def _again(self, go_on: Callable[[], None], done: ReadDone, error: BaseException | None) -> None:
        if error is None:
            go_on()
        elif isinstance(error, DuramenError):
            done(error)
        else:
            done(StorageFailed(f"{self._log.directory} cannot be read: {error}"))
