"""What of a partition is on a node's disk, as its replica begins with it: judged before anything is said of it."""

from collections.abc import Callable

from duramen.base.errors import DuramenError, LogDamaged, StorageFailed
from duramen.broker.replicas.batches import NO_EPOCH
from duramen.codec.batch import Header
from duramen.replication.replica import Kept
from duramen.storage.log import Log
from duramen.storage.reader import Blocked
from duramen.storage.store import Store
from duramen.storage.takeovers import Takeover

__all__ = ["look", "takeovers_of"]

LookDone = Callable[[Kept | DuramenError], None]


def look(store: Store, log: Log, done: LookDone) -> None:
    """Find what is kept of `log`, to which nobody appends: once all that a replica before this one ordered is synced.

    `done` gets StorageFailed, or LogDamaged where the log has lost records: it would be counted on for them.
    """
    if log.damage:
        lost = ", ".join(f"{first} to {last}" for first, last in log.damage)
        done(LogDamaged(f"{log.directory} has lost the offsets {lost}: its replica takes no part with them missing"))
        return

    def synced(error: DuramenError | None) -> None:
        if error is not None:
            done(error)
        else:
            store.drop_empty_leaderships(log)
            _look_for_filler(store, log, begun)

    def begun(error: DuramenError | None) -> None:
        done(error if error is not None else Kept(takeovers_of(log), log.start_offset, log.end_offset))

    store.when_settled(log, synced)


def takeovers_of(log: Log) -> tuple[Takeover, ...]:
    """The leaderships of the records that are there; a log without any is a part of every history."""
    rows = list(log.takeovers)
    if not rows or log.start_offset == log.end_offset:
        return ()
    ends = [*(row.first_offset for row in rows[1:]), log.end_offset]
    return tuple(
        row._replace(first_offset=max(row.first_offset, log.start_offset))
        for row, end in zip(rows, ends, strict=True)
        if end > log.start_offset
    )


def _look_for_filler(store: Store, log: Log, done: Callable[[DuramenError | None], None]) -> None:
    """Let go of what a log was begun anew with, where the process ended in the middle of that."""
    if log.start_offset == log.end_offset or log.active.max_timestamp >= 0:
        done(None)
        return

    def again(error: BaseException | None) -> None:
        if error is None:
            _look_for_filler(store, log, done)
        else:
            done(StorageFailed(f"{log.directory} cannot be read: {error}"))

    try:
        found = log.plan_header(log.end_offset - 1)
    except LogDamaged as error:
        done(error)
        return
    if isinstance(found, Blocked):
        store.unblock(found, again)
    elif isinstance(found, Header) and found.leader_epoch == NO_EPOCH:
        store.delete_before(log, log.end_offset, done)
    else:
        done(None)
