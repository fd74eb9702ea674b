"""Bugs of light queues: what is answered, what operations make of the rows, who has a lease."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, cast

from tests.sim.planted import Bug, Original, Place

from duramen.base.ids import Position
from duramen.base.ports import StateRows
from duramen.broker.streams import Stream
from duramen.codec.batch import BatchInput, DecodedRecord
from duramen.codec.sequences import FIRST_DERIVED_ID
from duramen.coordinators.runtime.active import ActiveShard
from duramen.coordinators.runtime.checkpoints import RowCheckpoints
from duramen.coordinators.runtime.rows import RowStates
from duramen.coordinators.runtime.shard import ShardAnswer
from duramen.delivery.window import AcknowledgeType
from duramen.queues import changes, leases, machine
from duramen.queues.leases import Leased, LeaseLimits, ShardLeases
from duramen.queues.names import Queue
from duramen.queues.operations import Operation
from duramen.queues.pending_rows import PendingRows
from duramen.queues.requests import RequestId
from duramen.queues.retention import Retention, RetentionCounts
from duramen.queues.rows import (
    Delivered,
    DueEntry,
    Overlay,
    QueueState,
    overlay_key,
    overlays,
    queue_end,
    run_key,
    state_key,
    state_of,
    state_value,
)
from duramen.queues.runs import QueueEntry, Run
from duramen.service import queue_leases
from duramen.storage.log.log import Log
from duramen.storage.log.producers import ProducerTable
from duramen.storage.recovery import recovery
from duramen.storage.recovery.recovery import Recovered

__all__ = ["QUEUE_BUGS"]


def _answer_appended(right: Original) -> Original:
    def _append(self: ActiveShard, some: list[Any], new: list[Any]) -> None:
        base_offset, told = self._partition.log.end_offset, list(some)
        right(self, some, new)
        for pending in told:
            done, pending.done = pending.done, lambda _: None
            done(ShardAnswer(pending.decision.response, 0, base_offset + pending.place))

    return _append


def _drop_overlays(right: Original) -> Original:
    def _edit_run(
        self: Any, queue: bytes, run: Run, edits: dict[int, Overlay], state: QueueState | None
    ) -> dict[int, Overlay]:
        known = dict(overlays(self._rows, queue, run.first, run.last))
        if 4 * len(known | edits) > len(run.offsets):
            for at in known:
                self._rows.put(overlay_key(queue, at), None)
        left: dict[int, Overlay] = right(self, queue, run, edits, state)
        return left

    return _edit_run


def _move_far(right: Original) -> Original:
    def acknowledge(rows: PendingRows, queue: bytes, acks: Mapping[int, int]) -> dict[int, int]:
        found: dict[int, int] = right(rows, queue, acks)
        state = state_of(rows, queue)
        head = max(acks, default=-1) + 1
        if head > state.head:
            rows.put(state_key(queue), state_value(state._replace(head=head, done=())))
        return found

    return acknowledge


def _take_back_one(right: Original) -> Original:
    def _take_back(self: Any, queue: bytes, operation: Operation, offset: int) -> None:
        start = run_key(queue, operation.at.offset)
        found = list(self._rows.scan(start, queue_end(b"r", queue)))
        right(self, queue, operation, offset)
        for key, data in found[1:]:
            self._rows.put(key, data)

    return _take_back


def _never_before(right: Original) -> Original:
    del right

    def made_before(rows: StateRows, hashed: bytes, digest: bytes) -> Position | None:
        del rows, hashed, digest
        return None

    return made_before


def _cut_applied(right: Original) -> Original:
    def floor(self: RowCheckpoints, log: Log, *, leads: bool) -> int:
        found: int = right(self, log, leads=leads)
        return max(found, cast("RowStates", self._rows).stored(log, leads=leads).offset) if found else found

    return floor


def _lease_again(right: Original) -> Original:
    def lease(
        self: ShardLeases, rows: StateRows, queue: Queue, limits: LeaseLimits, now_ms: int, leader_epoch: int
    ) -> list[Leased]:
        self._books.pop(queue.hash, None)
        found: list[Leased] = right(self, rows, queue, limits, now_ms, leader_epoch)
        return found

    return lease


def _refuse_older(right: Original) -> Original:
    del right

    def older_lease_counts(outcome: AcknowledgeType) -> bool:
        del outcome
        return False

    return older_lease_counts


def _show_at_once(right: Original) -> Original:
    def delivered_of(rows: StateRows, queue: bytes, offset: int) -> Delivered:
        found: Delivered = right(rows, queue, offset)
        return found._replace(visible_ms=0)

    return delivered_of


def _forget_delays(right: Original) -> Original:
    def entry_times(record: DecodedRecord) -> tuple[int, int]:
        _, expires_ms = right(record)
        return 0, expires_ms

    return entry_times


def _keep_expired(right: Original) -> Original:
    def entries_from(rows: StateRows, queue: bytes, state: QueueState, start: int) -> Iterator[QueueEntry]:
        for entry in right(rows, queue, state, start):
            yield entry._replace(expires_ms=0)

    return entries_from


def _never_expire(right: Original) -> Original:
    def due_entries(rows: StateRows, since_ms: int, until_ms: int) -> Iterator[tuple[bytes, DueEntry]]:
        for key, entry in right(rows, since_ms, until_ms):
            yield key, entry._replace(expires=False)

    return due_entries


def _pass_over_delayed(right: Original) -> Original:
    del right

    def due(self: ShardLeases, queue: bytes, offset: int) -> None:
        del self, queue, offset

    return due


def _forget_position(right: Original) -> Original:
    def request_of(space: Stream, text: str) -> RequestId | None:
        found: RequestId | None = right(space, text.rpartition("/")[0])
        return found

    return request_of


def _uncount(right: Original) -> Original:
    def nack_record(queue: bytes, at: Position, deliveries: int, visible_ms: int, now_ms: int) -> BatchInput:
        del deliveries
        record: BatchInput = right(queue, at, 0, visible_ms, now_ms)
        return record

    return nack_record


def _empty_what_was_there(right: Original) -> Original:
    def _empty(self: Any, queue: bytes, offset: int, *, forget: bool) -> None:
        new = {key: value for key, value in self._rows.changes.items() if key.startswith(b"r" + queue)}
        right(self, queue, offset, forget=forget)
        for key, value in new.items():
            self._rows.put(key, value)
        if new:
            self._rows.put(state_key(queue), None)

    return _empty


def _keep_name(right: Original) -> Original:
    def _empty(self: Any, queue: bytes, offset: int, *, forget: bool) -> None:
        del forget
        right(self, queue, offset, forget=False)

    return _empty


def _half_the_time(right: Original) -> Original:
    def outdates(self: Retention, entry: QueueEntry, now_ms: int) -> bool:
        found: bool = right(self._replace(ms=self.ms // 2), entry, now_ms)
        return found

    return outdates


def _never_stale(right: Original) -> Original:
    def written(self: RetentionCounts, keys: Collection[bytes]) -> None:
        right(self, keys)
        for count in self._counts.values():
            count.stale = False

    return written


def _forget_derived(right: Original) -> Original:
    def run(self: Any) -> Recovered:
        recovered: Recovered = right(self)
        for log in recovered.logs.values():
            known = [row for row in log.producers.rows() if row[0] < FIRST_DERIVED_ID]
            log.producers = ProducerTable(known, log.producers.forgotten_id)
        return recovered

    return run


QUEUE_BUGS: Final = (
    Bug("queue-answered-early", "answered before committed", (Place(ActiveShard, "_append", _answer_appended),)),
    Bug(
        "queue-overlay-dropped",
        "overlay dropped by a rewriting",
        (Place(changes._Step, "_edit_run", _drop_overlays),),
    ),
    Bug(
        "queue-head-too-far",
        "head moved past an entry that is not acked",
        (Place(changes, "acknowledge", _move_far),),
    ),
    Bug("queue-half-replaced", "`replace` half applied", (Place(changes._Step, "_take_back", _take_back_one),)),
    Bug(
        "queue-request-twice",
        "a request with an id is done again",
        (Place(machine, "made_before", _never_before),),
    ),
    Bug(
        "queue-log-cut-early",
        "log cut below what the older checkpoint has",
        (Place(RowCheckpoints, "floor", _cut_applied),),
    ),
    Bug(
        "queue-producer-forgotten",
        "producers of queues' topics forgotten by a restart",
        (Place(recovery._Recovery, "run", _forget_derived),),
    ),
    Bug("queue-leased-twice", "two holders of one entry", (Place(ShardLeases, "lease", _lease_again),)),
    Bug(
        "queue-ack-lost",
        "ack of a lease of an older epoch lost",
        (Place(leases, "older_lease_counts", _refuse_older),),
    ),
    Bug("queue-shown-early", "a delayed entry shown before its time", (Place(changes, "entry_times", _forget_delays),)),
    Bug(
        "queue-expired-leased",
        "an expired entry leased, and never deleted",
        (Place(leases, "entries_from", _keep_expired), Place(changes, "due_entries", _never_expire)),
    ),
    Bug("queue-delayed-stuck", "a delayed entry never leased", (Place(ShardLeases, "due", _pass_over_delayed),)),
    Bug(
        "queue-dead-letter-lost",
        "a dead letter taken for another one that was moved before, and lost",
        (Place(queue_leases, "request_of", _forget_position),),
    ),
    Bug("queue-deliveries-lost", "deliveries not counted", (Place(leases, "nack_record", _uncount),)),
    Bug(
        "queue-purge-undone",
        "a purge undone by a restart, which applies what came before it in the same step",
        (Place(changes._Step, "_empty", _empty_what_was_there),),
    ),
    Bug("queue-dropped-listed", "a dropped queue still listed", (Place(changes._Step, "_empty", _keep_name),)),
    Bug("queue-trimmed-young", "an entry trimmed that is young", (Place(Retention, "outdates", _half_the_time),)),
    Bug(
        "queue-trimmed-few",
        "entries trimmed that are fewer than what is kept",
        (Place(RetentionCounts, "written", _never_stale),),
    ),
    Bug(
        "queue-delay-lost", "given back for later, and leased at once", (Place(leases, "delivered_of", _show_at_once),)
    ),
)
