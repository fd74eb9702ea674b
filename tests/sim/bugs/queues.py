"""Bugs of light queues: what is answered, what operations make of the rows, who has a lease."""

from collections.abc import Mapping
from typing import Any, Final

from tests.sim.planted import Bug, Original, Place

from duramen.base.ids import Position
from duramen.base.ports import StateRows
from duramen.coordinators.runtime.active import ActiveShard
from duramen.coordinators.runtime.layout import EMPTY
from duramen.coordinators.runtime.rows import RowStates
from duramen.coordinators.runtime.shard import ShardAnswer
from duramen.delivery.window import Outcome
from duramen.queues import changes, leases, machine
from duramen.queues.leases import Leased, LeaseWish, ShardLeases
from duramen.queues.names import Queue
from duramen.queues.operations import Operation
from duramen.queues.pending_rows import PendingRows
from duramen.queues.rows import (
    Delivered,
    Overlay,
    overlay_key,
    overlays,
    queue_end,
    run_key,
    state_key,
    state_of,
    state_value,
)
from duramen.queues.runs import Run
from duramen.storage.log.log import Log

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
    def _edit_run(self: Any, queue: bytes, run: Run, edits: dict[int, Overlay]) -> None:
        known = dict(overlays(self._rows, queue, run.first, run.last))
        if 4 * len(known | edits) > len(run.offsets):
            for at in known:
                self._rows.put(overlay_key(queue, at), None)
        right(self, queue, run, edits)

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
    def floor(self: RowStates, log: Log) -> int:
        found: int = right(self, log)
        return max(found, self._stored.get(log.id, EMPTY).offset) if found else found

    return floor


def _lease_again(right: Original) -> Original:
    def lease(
        self: ShardLeases, rows: StateRows, queue: Queue, wish: LeaseWish, now_ms: int, leader_epoch: int
    ) -> list[Leased]:
        self._books.pop(queue.hash, None)
        found: list[Leased] = right(self, rows, queue, wish, now_ms, leader_epoch)
        return found

    return lease


def _refuse_older(right: Original) -> Original:
    del right

    def older_lease_counts(outcome: Outcome) -> bool:
        del outcome
        return False

    return older_lease_counts


def _show_at_once(right: Original) -> Original:
    def delivered_of(rows: StateRows, queue: bytes, offset: int) -> Delivered:
        found: Delivered = right(rows, queue, offset)
        return found._replace(visible_ms=0)

    return delivered_of


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
        (Place(RowStates, "floor", _cut_applied),),
    ),
    Bug("queue-leased-twice", "two holders of one entry", (Place(ShardLeases, "lease", _lease_again),)),
    Bug(
        "queue-ack-lost",
        "ack of a lease of an older epoch lost",
        (Place(leases, "older_lease_counts", _refuse_older),),
    ),
    Bug(
        "queue-delay-lost", "given back for later, and leased at once", (Place(leases, "delivered_of", _show_at_once),)
    ),
)
