"""The checkpoint cycle: copy waiting batches, sync the segments, write the node checkpoint, release the WAL.

The states that it writes belong to one WAL position, taken at the start of the cycle: everything before it is in the
segments when the checkpoint names it. The WAL is released up to the position of the *previous* checkpoint, so that
either generation suffices for recovery.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from duramen.base.errors import DuramenError
from duramen.base.metrics import Metrics
from duramen.base.ports import FileSystem, Worker
from duramen.storage.checkpoint import NodeCheckpoint, write_checkpoint
from duramen.storage.log.log import Log
from duramen.storage.log.state import LogState
from duramen.storage.log.sync import SegmentSync, plan_sync, sync_segments, synced, write_index
from duramen.storage.maintenance.copier import Copier
from duramen.storage.maintenance.segment_rewrite import Rewriter
from duramen.storage.segment.index import BLOCK_SHIFT
from duramen.storage.wal.wal import Wal

__all__ = ["Checkpointer", "NodeState"]


class NodeState(Protocol):
    """The store's part of the checkpoint."""

    directory_id: bytes
    node_epoch: int
    next_log_id: int
    damaged: bool
    metadata_damaged: bool

    def each_log(self) -> Iterable[Log]:
        """Every log that is not deleted."""


class _Snapshot(NamedTuple):
    log: Log
    version: int
    state: LogState | None  # None if the last checkpoint's entry is still valid
    waits: bool  # for bytes in memory to reach the last segment's file


class _Entry(NamedTuple):
    log: Log
    version: int
    raw: bytes


def _snapshot(log: Log) -> _Snapshot:
    if log.saved is not None and log.saved[0] == log.version:
        return _Snapshot(log, log.version, None, waits=False)
    return _Snapshot(log, log.version, log.state(), waits=bool(log.active.pending))


def _encode(snapshot: _Snapshot) -> _Entry:
    log, state = snapshot.log, snapshot.state
    if state is None and log.saved is not None:
        return _Entry(log, *log.saved)
    if state is None:
        raise AssertionError("a log without a state has an entry")
    if snapshot.waits and state.segments:
        last = state.segments[-1]
        for segment in log.segments:
            if segment.base_offset == last.base_offset and segment.index is not None:
                crc = segment.index.crc(last.size >> BLOCK_SHIFT)
                state = msgspec.structs.replace(state, tail=state.tail._replace(crc=crc))
    return _Entry(log, snapshot.version, msgspec.msgpack.encode(state))


class Checkpointer:
    """Runs one cycle at a time; a request during one gets another after it.

    A segment whose sync failed is rewritten into new files before the next checkpoint, in the same cycle. If that fails
    too, no checkpoint is written until `retry` allows another try: the WAL keeps the records that the segment may have
    lost.
    """

    def __init__(
        self,
        files: FileSystem,
        worker: Worker,
        node: NodeState,
        wal: Wal,
        copier: Copier,
        rewriter: Rewriter,
        metrics: Metrics,
        *,
        number: int,
        released: int,
        on_segment_failure: Callable[[Log, OSError], None],
    ) -> None:
        """`number` is that of the newest existing checkpoint; the WAL before `released` is not needed any more."""
        self._files = files
        self._worker = worker
        self._node = node
        self._wal = wal
        self._copier = copier
        self._rewriter = rewriter
        self._number = number
        self._released = released
        self._on_segment_failure = on_segment_failure
        self._failed: OSError | None = None
        self._running = False
        self._waiting: dict[Callable[[OSError | None], None], None] = {}
        self._again = False
        self._clean = False
        self._holds = 0
        self._held: Callable[[], None] | None = None  # the continuation of a cycle, once no hold is left
        self._written = metrics.counter("duramen_checkpoints_total")

    def request(self, done: Callable[[OSError | None], None] | None = None, *, clean: bool = False) -> None:
        """Run a cycle that covers everything appended so far, then `done(None)` or `done(error)`.

        Repeated requests of one callback for the same cycle are called once: a store with a full WAL asks again at
        every end of one. `clean`: nothing will be appended after it, so the next start need not read the WAL.
        """
        self._clean = self._clean or clean
        if clean:
            self._failed = None
        if done is not None:
            self._waiting[done] = None
        if self._running:
            self._again = True
            return
        self._running = True
        self._copier.when_idle(self._begin)

    def _begin(self, _: OSError | None) -> None:
        if self._copier.running:
            self._copier.when_idle(self._begin)
            return
        self._again = False
        finishing, self._waiting = list(self._waiting), {}
        if not any(segment.suspect for segment in self._copier.unsynced):
            self._copy(finishing, again=True)
        elif self._failed is not None:
            # Deferred, because a callback may request again.
            self._worker.soon(partial(self._finish, finishing, self._failed))
        else:
            self._rewrite(finishing)

    def retry(self) -> None:
        """Allow another try to rewrite segments."""
        self._failed = None

    def hold(self) -> Callable[[], None]:
        """Take no states until the result is called, which must be soon.

        A state taken between a truncation's frame and the truncation has the position after that frame, and would undo
        it.
        """
        self._holds += 1
        return self._let_go

    def _let_go(self) -> None:
        self._holds -= 1
        if not self._holds and self._held is not None:
            self._worker.soon(self._held)
            self._held = None

    def _rewrite(self, finishing: list[Callable[[OSError | None], None]]) -> None:
        def done(error: OSError | None) -> None:
            if error is not None:
                self._failed = error
                self._finish(finishing, error)
            else:
                self._copy(finishing, again=False)

        # Nothing newer than the last good checkpoint is released: the WAL has every byte that is synced nowhere else.
        self._rewriter.rewrite(self._released, done)

    def _copy(self, finishing: list[Callable[[OSError | None], None]], *, again: bool) -> None:
        """The cycle itself; `again` if a failed sync may be followed by another in the same cycle."""
        if self._holds:
            self._held = partial(self._copy, finishing, again=again)
            return
        if self._copier.running:
            self._copier.when_idle(lambda _: self._copy(finishing, again=again))
            return
        # A later stop request must not mark a cycle as clean that does not cover earlier appends.
        position, clean = self._wal.end, self._clean
        states = [_snapshot(log) for log in self._node.each_log() if log.written]

        def copied(error: OSError | None) -> None:
            if error is not None:
                self._finish(finishing, error)
                return
            # Only now is the CRC of each last block known up to the position of its state.
            entries = [_encode(snapshot) for snapshot in states if not snapshot.log.deleted]

            def logged(failed: DuramenError | None) -> None:
                self._logged(
                    failed, partial(self._sync, position, entries, finishing, clean=clean, again=again), finishing
                )

            # After a power loss, a checkpoint beyond the synced WAL would lack files and frames of it.
            self._wal.wait(position, logged)
            self._wal.flush()

        self._copier.copy(copied)

    def _logged(
        self,
        failed: DuramenError | None,
        sync: Callable[[], None],
        finishing: list[Callable[[OSError | None], None]],
    ) -> None:
        """The WAL is synced up to the position of the states; a sync for `flush.ms` may have failed since."""
        if failed is not None:
            self._finish(finishing, OSError(str(failed)))
        elif self._copier.running:
            self._copier.when_idle(lambda _: self._logged(None, sync, finishing))
        elif any(segment.suspect for segment in self._copier.unsynced):
            self._again = True
            self._waiting = dict.fromkeys(finishing) | self._waiting
            self._finish([], None)
        else:
            sync()

    def _sync(
        self,
        position: int,
        entries: list[_Entry],
        finishing: list[Callable[[OSError | None], None]],
        *,
        clean: bool,
        again: bool,
    ) -> None:
        unsynced, self._copier.unsynced = self._copier.unsynced, {}
        # Including segments that were deleted meanwhile, until that is durable: the states may name them.
        syncs = [plan_sync(log, segment) for segment, log in unsynced.items() if not log.deleted]
        self._number += 1
        number = self._number
        checkpoint = NodeCheckpoint(
            self._node.directory_id,
            self._node.node_epoch,
            self._node.next_log_id,
            position,
            position >> 32,
            clean,
            [msgspec.Raw(entry.raw) for entry in entries if not entry.log.deleted],
            damaged=self._node.damaged,
            metadata_damaged=self._node.metadata_damaged,
        )

        def job() -> list[tuple[SegmentSync, OSError]]:
            for sync in syncs:
                write_index(self._files, sync)
            failures = sync_segments(self._files, syncs)
            if not failures:
                write_checkpoint(self._files, number, checkpoint)
            return failures

        def done(result: list[tuple[SegmentSync, OSError]] | BaseException) -> None:
            if isinstance(result, BaseException):
                # No sync is certain, and nothing is lost: the next cycle repeats all of it.
                self._copier.unsynced = unsynced | self._copier.unsynced
                self._finish(finishing, result if isinstance(result, OSError) else OSError(str(result)))
                return
            if result:
                self._copier.unsynced = unsynced | self._copier.unsynced
                for sync, error in result:
                    sync.segment.suspect = True
                    self._on_segment_failure(sync.log, error)
                if again:
                    self._rewrite(finishing)
                else:
                    self._failed = result[0][1]
                    self._finish(finishing, self._failed)
                return
            self._complete(position, entries, syncs)
            self._finish(finishing, None)

        self._worker.submit("disk", job, done)

    def _complete(self, position: int, entries: list[_Entry], syncs: list[SegmentSync]) -> None:
        for sync in syncs:
            synced(sync)
        for entry in entries:
            entry.log.saved = (entry.version, entry.raw)
        self._written.value += 1
        previous, self._released = self._released, position
        self._wal.release(previous)

    def _finish(self, finishing: list[Callable[[OSError | None], None]], error: OSError | None) -> None:
        self._running = False
        for done in finishing:
            done(error)
        if self._again or (self._waiting and not self._running):
            self.request()
