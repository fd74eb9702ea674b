"""A log on the node's storage whose batches another node orders: the metadata log, and logs of partitions."""

from collections.abc import Callable

from duramen.base.errors import DuramenError, LogDamaged
from duramen.storage.log.log import Log
from duramen.storage.store import Store

__all__ = ["FollowedLog"]

Done = Callable[[DuramenError | None], None]


class FollowedLog:
    """Records leader epochs before their batches, truncates, and restarts the log."""

    def __init__(self, store: Store, log: Log) -> None:
        self._store = store
        self._log = log
        self._entered = log.takeovers.latest_epoch
        self._over = False

    def end(self) -> None:
        """End all work: pending operations stop where they are, as in a crash."""
        self._over = True

    def enter(self, epoch: int, leader_id: int) -> None:
        """The next appends are batches of `epoch`, ordered by `leader_id`."""
        if epoch > self._entered:
            self._entered = epoch
            # If that fails, the append fails too, and reports it.
            self._store.follow(self._log, epoch, leader_id, lambda _: None)

    def cut(self, end_offset: int, done: Done) -> None:
        """Truncate the log; `done(None)` once that is durable, and all records before the end are synced."""

        def cut(error: DuramenError | None) -> None:
            self._entered = self._log.takeovers.latest_epoch
            if error is None and self._log.end_offset != end_offset:
                at = f"{self._log.directory} was to be cut at offset {end_offset}"
                error = LogDamaged(f"{at}, where no batch begins: it ends at {self._log.end_offset}")
            done(error)

        self._store.truncate(self._log, end_offset, max(self._log.takeovers.latest_epoch, 0), cut)

    def restart(
        self, start_offset: int, kept_offset: Callable[[], int], fill: Callable[[Done], None], done: Done
    ) -> None:
        """Restart the log at `start_offset`; `done(None)` once that is durable.

        The log is truncated to `kept_offset`, `fill` appends a placeholder for the records up to the start, and then
        everything before the start is deleted.
        """

        def begin(error: DuramenError | None) -> None:
            kept = kept_offset()
            if error is None and kept < self._log.end_offset:
                self.cut(kept, self._still(cut))
            else:
                cut(error)

        def cut(error: DuramenError | None) -> None:
            if error is not None:
                done(error)
            else:
                fill(self._still(filled))

        def filled(error: DuramenError | None) -> None:
            if error is not None:
                done(error)
            else:
                self._store.delete_before(self._log, start_offset, self._still(emptied), patient=True)

        def emptied(error: DuramenError | None) -> None:
            if error is None:
                self._store.drop_empty_leaderships(self._log)
            self._entered = self._log.takeovers.latest_epoch
            done(error)

        self._store.when_appended(self._log, self._still(begin))  # appends that still wait may move its end

    def _still(self, go_on: Done) -> Done:
        """`go_on`, unless the object is closed by then."""

        def called(error: DuramenError | None) -> None:
            if not self._over:
                go_on(error)

        return called
