"""The state of a replica's log on disk when the replica starts: checked before it reports anything.

If damage has cost records and other replicas are known to have them, the log is truncated before them and fetched
again.
"""

from collections.abc import Callable
from enum import Enum

from duramen.base.errors import DuramenError, LogDamaged, StorageFailed
from duramen.base.leader_epochs import Takeover
from duramen.broker.replicas.batches import NO_EPOCH
from duramen.codec.batch import Header
from duramen.metadata.partitions import PartitionState
from duramen.replication.replica import ReplicaDiskState
from duramen.storage.log.log import Log
from duramen.storage.segment.reader import Blocked
from duramen.storage.store import Store

__all__ = ["DamagePolicy", "gaps_of", "look", "lost_ranges", "takeovers_of"]

LookDone = Callable[[ReplicaDiskState | DuramenError], None]


class DamagePolicy(Enum):
    """The consequence for a log that has lost records to damage."""

    REFUSED = "no other replica is known to have the records, so this replica is out of service"
    CUT = "the leader has them, so the log is truncated before them and fetches them again"
    KEPT = "no other replica has later records, so reads of the lost range fail and all others succeed"


def gaps_of(state: PartitionState, node_id: int) -> DamagePolicy:
    """The consequence of gaps in the log of this node's replica, for this state of the partition."""
    holders = {*state.isr, *state.elr}
    if holders == {node_id}:
        return DamagePolicy.KEPT
    led = state.leader is not None and state.leader != node_id
    return DamagePolicy.CUT if led and node_id not in holders else DamagePolicy.REFUSED


def lost_ranges(log: Log) -> list[tuple[int, int]]:
    """The first and the last offset of each range that the log has lost, as far as that is known, in order."""
    found = list(log.damage)
    ends = [*(segment.base_offset for segment in log.segments[1:]), log.end_offset]
    for segment, end_offset in zip(log.segments, ends, strict=True):
        found += [
            (damage.first_offset, damage.last_offset if damage.last_offset >= 0 else end_offset - 1)
            for damage in segment.damage
        ]
    return sorted((max(first, log.start_offset), last) for first, last in found if last >= log.start_offset)


def look(store: Store, log: Log, done: LookDone, gaps: DamagePolicy = DamagePolicy.REFUSED) -> None:
    """Find the state of `log`, which gets no appends, once everything that an earlier replica appended is synced.

    `done` gets StorageFailed, or LogDamaged if the log has lost records, because others would rely on them.
    """

    def settled(error: DuramenError | None) -> None:
        if error is not None:
            done(error)
            return
        lost = lost_ranges(log)
        if not lost or gaps is DamagePolicy.KEPT:
            store.drop_empty_leaderships(log)
            _look_for_filler(store, log, begun)
        elif gaps is DamagePolicy.CUT:
            _cut_before(store, log, lost[0][0], done)
        else:
            named = ", ".join(f"{first} to {last}" for first, last in lost)
            why = "its replica is out of service while the cluster counts on it for them, or has no other leader"
            done(LogDamaged(f"{log.directory} lost the offsets {named} to damage: {why}"))

    def begun(error: DuramenError | None) -> None:
        done(error if error is not None else ReplicaDiskState(takeovers_of(log), log.start_offset, log.end_offset))

    store.when_settled(log, settled)


def _cut_before(store: Store, log: Log, offset: int, done: LookDone) -> None:
    """Let the log end before its lost records, and check again."""

    def cut(error: DuramenError | None) -> None:
        if error is None and log.end_offset > offset:
            error = LogDamaged(f"{log.directory} was to be cut at offset {offset}: it ends at {log.end_offset}")
        if error is not None:
            done(error)
        else:
            look(store, log, done)

    store.truncate(log, offset, max(log.takeovers.latest_epoch, 0), cut)


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
    """Delete the placeholders of a log that was being recreated when the process ended."""
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
