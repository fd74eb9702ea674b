"""Schedules copies and checkpoints, and tracks the obstacles to them.

Copies start after a time or an amount in memory, checkpoints after a time or an amount of write-ahead log. If one fails
for lack of space, it is retried until there is space; until then `trouble` gives the reason why appends fail.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from duramen.base.deadlines import Deadline, Deadlines
from duramen.base.errors import DuramenError, StorageFailed, StorageFull
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock, FileSystem, Worker
from duramen.storage.io import is_full, is_passing
from duramen.storage.log.log import Log
from duramen.storage.maintenance.checkpointer import Checkpointer, NodeState
from duramen.storage.maintenance.copier import Copier
from duramen.storage.maintenance.segment_rewrite import Rewriter
from duramen.storage.planning.compaction import CompactionLimits
from duramen.storage.segment.handles import Handles
from duramen.storage.wal.wal import Wal

__all__ = ["StoreLimits", "Upkeep", "segment_failed", "trouble"]

_Told = Callable[[DuramenError], None]

_CHECKPOINT_INTERVAL_MS: Final = 60_000
_RETRY_MS: Final = 1000


class StoreLimits(NamedTuple):
    """Limits of a store, in bytes and milliseconds."""

    wal_file_bytes: int = 64 << 20
    wal_max_bytes: int = 1 << 30
    pending_bytes: int = 128 << 20
    copy_bytes: int = 8 << 20
    copy_interval_ms: int = 5000
    compaction: CompactionLimits = CompactionLimits()


def trouble(what: str, error: BaseException) -> DuramenError:
    """The error for users about an error of the disk."""
    if not isinstance(error, OSError):
        return StorageFailed(f"{what}: {error}")
    if is_full(error):
        return StorageFull(f"the disk is full: {what}")
    if is_passing(error):
        return StorageFull(f"{what}: {error.strerror}")
    return StorageFailed(f"{what}: {error.strerror or error}")


class Upkeep:
    """The copier and the checkpointer, and their schedule."""

    def __init__(
        self,
        files: FileSystem,
        worker: Worker,
        clock: Clock,
        deadlines: Deadlines,
        handles: Handles,
        metrics: Metrics,
        wal: Wal,
        node: NodeState,
        *,
        checkpoint_number: int,
        limits: StoreLimits,
        on_room: Callable[[], None],
        wanted: Callable[[], bool],
    ) -> None:
        """`on_room` is called when waiting appends may continue; `wanted` tells whether there are any."""
        self.trouble: DuramenError | None = None  # why waiting appends are refused
        self.unfinished: DuramenError | None = None  # why a truncation recorded in the WAL is left to the next start
        self.copier = Copier(files, worker, handles, metrics, on_copied=self._copied, on_error=self._copy_failed)
        rewriter = Rewriter(files, handles, wal, self.copier, metrics)
        self.checkpointer = Checkpointer(
            files, worker, node, wal, self.copier, rewriter, metrics,
            number=checkpoint_number, released=wal.synced, on_segment_failure=segment_failed,
        )  # fmt: skip
        self._worker = worker
        self._clock = clock
        self._deadlines = deadlines
        self._wal = wal
        self._limits = limits
        self._on_room = on_room
        self._wanted = wanted
        self._copy_due = False
        self._copy_again = False
        self._retry_due = False
        self._again: list[tuple[Callable[[], None], Callable[[], None]]] = []  # a failed step, and how to give up
        self._ended = False
        self._checkpoint_deadline: Deadline | None = None
        self._bulk_bytes = 0  # since the last checkpoint
        self._checkpointed_generation = wal.generation

    @property
    def full(self) -> DuramenError | None:
        """The reason why segments cannot be written, if there may be room later."""
        return self.trouble if isinstance(self.trouble, StorageFull) else None

    # -- copies -------------------------------------------------------------------------------------

    def copy_later(self) -> None:
        """A batch waits in memory: copy it after a delay, or now if much waits."""
        if self.copier.pending_bytes >= self._limits.copy_bytes:
            self.copier.copy()
        elif not self._copy_due:
            self._copy_due = True
            self._deadlines.at(self._clock.monotonic_ms() + self._limits.copy_interval_ms, self._copy_now)

    def copy_in_bulk(self) -> None:
        """Copy waiting batches as they arrive: a large copy at once would delay other syncs."""
        if self.copier.running:
            self._copy_again = True
        else:
            self.copier.copy()

    def copy_all(self, done: Callable[[OSError | None], None]) -> None:
        """Copy everything that waits in memory now, then call `done`."""
        if self.copier.running:
            self.copier.when_idle(lambda _: self.copy_all(done))
        else:
            self.copier.copy(done)

    def _copy_now(self) -> None:
        self._copy_due = False
        self.copier.copy()

    def _copied(self) -> None:
        self._on_room()
        again, self._copy_again = self._copy_again, False
        if again or self.copier.pending_bytes >= self._limits.copy_bytes:
            self.copier.copy()
        elif self.copier.pending_bytes:
            self.copy_later()

    def _copy_failed(self, error: OSError) -> None:
        # The batches still wait in memory and in the WAL: try again until there is space.
        self.trouble = trouble("segments cannot be written", error)
        self.retry_later()
        self._on_room()

    # -- checkpoints --------------------------------------------------------------------------------

    def checkpoint_in_time(self) -> None:
        """Something was appended: a checkpoint is due after a while, or now if the WAL has grown much."""
        files = max(1, self._limits.wal_max_bytes // 8 // self._limits.wal_file_bytes)
        if self._wal.generation - self._checkpointed_generation >= files:
            self.checkpoint()
        else:
            self.checkpoint_later()

    def checkpoint_after(self, size: int) -> None:
        """Note the number of bytes appended in bulk: recovery should read no more of them than of the WAL."""
        self._bulk_bytes += size
        if self._bulk_bytes >= self._limits.wal_max_bytes:
            self.checkpoint()
        else:
            self.checkpoint_later()

    def checkpoint_later(self) -> None:
        """A checkpoint is due after a while."""
        if self._checkpoint_deadline is None:
            at_ms = self._clock.monotonic_ms() + _CHECKPOINT_INTERVAL_MS
            self._checkpoint_deadline = self._deadlines.at(at_ms, self.checkpoint)

    def checkpoint(self) -> None:
        """Make one now."""
        if self._checkpoint_deadline is not None:
            self._checkpoint_deadline.cancel()
            self._checkpoint_deadline = None
        self._checkpointed_generation = self._wal.generation
        self._bulk_bytes = 0
        self.checkpointer.request(self._checkpointed)

    def make_room(self) -> None:
        """Make another checkpoint while appends wait for room.

        A checkpoint releases the WAL up to the one before it: waiting appends may need two, and without appends nothing
        else requests them.
        """
        if self._wanted() and self._wal.releasable:
            self.checkpoint()

    def _checkpointed(self, error: OSError | None) -> None:
        if error is not None:
            self.trouble = trouble("segments cannot be synced", error)
            self.retry_later()
        else:
            self.trouble = None
            self._worker.soon(self.make_room)
        self._on_room()

    def retry_later(self) -> None:
        """Retry failed work after a while."""
        if not self._retry_due:
            self._retry_due = True
            self._deadlines.at(self._clock.monotonic_ms() + _RETRY_MS, self._retry)

    def retry_step(self, what: str, error: BaseException, step: Callable[[], None], give_up: _Told) -> None:
        """A step failed: retry it after a while if the error may pass, else call `give_up` with the error for users.

        Appends are refused meanwhile. A stopping store, or one whose segments cannot be synced for another reason,
        gives up at once.
        """
        told = self.trouble if isinstance(self.trouble, StorageFailed) else trouble(what, error)
        if self._ended or not isinstance(told, StorageFull):
            give_up(told)
            return
        self.trouble = told
        self._again.append((step, partial(give_up, told)))
        self.retry_later()
        self._on_room()

    def end(self) -> None:
        """Retry no failed step: the store stops."""
        self._ended = True
        waiting, self._again = self._again, []
        for _, give_up in waiting:
            give_up()

    def _retry(self) -> None:
        self._retry_due = False
        self.checkpointer.retry()
        self._wal.retry()
        waiting, self._again = self._again, []
        for step, _ in waiting:
            step()
        self.checkpoint()


def segment_failed(log: Log, error: OSError) -> None:
    """A sync of one of the log's segments failed: with durability=os nothing else has its records."""
    if log.durability == "os":
        log.failed = f"syncing {log.directory} failed ({error.strerror}); no writes until restart"
