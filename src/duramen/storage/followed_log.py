"""A log on the node's storage whose batches another node orders: the metadata log, and logs of partitions."""

from collections.abc import Callable

from duramen.base.errors import DuramenError, LogDamaged
from duramen.storage.log.log import Log
from duramen.storage.store import Store

__all__ = ["FollowedLog"]

Done = Callable[[DuramenError | None], None]


class FollowedLog:
    """Enters leader epochs before their batches, cuts, and begins anew."""

    def __init__(self, store: Store, log: Log) -> None:
        self._store = store
        self._log = log
        self._entered = log.takeovers.latest_epoch
        self._over = False

    def end(self) -> None:
        """Order nothing more: what is under way ends where it is, as if the process did."""
        self._over = True

    def enter(self, epoch: int, leader_id: int) -> None:
        """Batches of `epoch`, which `leader_id` has ordered, are appended next."""
        if epoch > self._entered:
            self._entered = epoch
            # Where that fails the append does too, and tells of it.
            self._store.follow(self._log, epoch, leader_id, lambda _: None)

    def cut(self, end_offset: int, done: Done) -> None:
        """Let go of what is behind; `done(None)` once that is so on disk, and all before it synced."""

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
        """Begin anew at `start_offset`; `done(None)` once that is so on disk.

        What is behind `kept_offset` is cut, `fill` appends what stands for the records up to the start, and then all
        before the start is let go.
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

        self._store.when_appended(self._log, self._still(begin))  # where its end is what may still wait decides

    def _still(self, go_on: Done) -> Done:
        """`go_on`, unless this is over by then."""

        def called(error: DuramenError | None) -> None:
            if not self._over:
                go_on(error)

        return called
