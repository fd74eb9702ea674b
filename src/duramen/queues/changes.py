"""Applies the records of a shard's log to its view. Pure.

Entries of a queue that arrive in one step share as few runs as possible. An operation on an existing entry is an
overlay. Once a run has as many overlays as a quarter of its entries, it is rewritten without them.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final

from duramen.base.ids import Position
from duramen.base.ports import StateRows
from duramen.codec.batch import DecodedRecord, header, records
from duramen.queues.acknowledged import acknowledge, drop_runs, remove_rows
from duramen.queues.names import HashName, name_problem
from duramen.queues.operations import (
    ChangeKind,
    Operation,
    entry_owner,
    entry_parts,
    entry_times,
    operation_of,
    request_of,
)
from duramen.queues.owners import Said, account
from duramen.queues.pending_rows import PendingRows
from duramen.queues.requests import remember
from duramen.queues.rows import (
    POSITION_KEY,
    Delivered,
    HistoryRange,
    Overlay,
    QueueState,
    RequestRow,
    delivered_value,
    delivery_key,
    due_entries,
    due_key,
    edited_run,
    epoch_key,
    name_key,
    overlay_key,
    overlay_value,
    overlays,
    position_of,
    position_value,
    queue_end,
    run_key,
    runs_at,
    state_key,
    state_of,
    state_value,
    times_key,
    with_range,
)
from duramen.queues.runs import RUN_BYTES, Body, Run, body_of, has_entries, runs, single_run
from duramen.queues.splitting import Change, NamedRun, split_changes, split_runs
from duramen.queues.totals import TotalsChange

__all__ = ["changes"]

_OVERLAID: Final = 4
"""A run is rewritten once its overlays, times this factor, are more than its entries."""
_EXPIRES: Final = b"\x01"
_SHOWN: Final = b"\x00"


class _Pending:
    """The changes of a queue in a step that are not in rows yet."""

    __slots__ = ("acks", "edits", "entries", "name", "queue")

    def __init__(self, name: bytes, queue: bytes) -> None:
        self.name = name
        self.queue = queue
        self.entries: list[Body] = []
        self.edits: dict[int, Overlay] = {}
        self.acks: dict[int, int] = {}  # offsets of entries, and those of their acks

    def change(self, kind: ChangeKind, at: int, offset: int, value: bytes | None) -> None:
        """Note an operation on the entry at an offset. A deleted entry stays deleted."""
        if kind == "ack":
            self.acks[at] = offset
        elif at not in self.edits or not self.edits[at].deleted:
            self.edits[at] = Overlay(offset, kind == "delete", value)


class _Step:
    """Records that are applied in one step."""

    def __init__(self, rows: StateRows, hash_name: HashName) -> None:
        self._before = rows
        self._rows = PendingRows(rows)
        self._new: dict[bytes, int] = {}  # owners of queues that may have had none
        self._said: dict[bytes, Said] = {}
        self._hash = hash_name
        self._queues: dict[bytes, _Pending] = {}
        self._requests: list[tuple[bytes, RequestRow]] = []
        self._totals = TotalsChange()
        before = position_of(rows)
        self._epoch = before.leader_epoch if before.offset else -1

    def begin(self, leader_epoch: int, offset: int) -> None:
        """The next records are of that leader epoch. A run has only one."""
        if leader_epoch == self._epoch:
            return
        self._flush_all()
        if self._rows.get(epoch_key(leader_epoch)) is None:
            self._rows.put(epoch_key(leader_epoch), offset.to_bytes(8, "big"))
        self._epoch = leader_epoch

    def take_runs(self, found: Sequence[NamedRun]) -> None:
        """Add runs of new entries."""
        name, queue = b"", b""
        for other, last, run in found:
            if other != name:
                name, queue = other, self._hash(other)
                self._rows.put(name_key(queue), name)
                if name in self._queues:
                    self._flush_entries(self._queues[name])  # runs do not overlap
            self._rows.put(run_key(queue, last), run)
            self._totals.added_run(run)

    def take_batches(self, batches: Sequence[bytes], position: int, first: int) -> int:
        """Apply the batch at `position`, and those after it that are alike; returns their number."""
        taken, found = split_changes(batches, position, first)
        if taken:
            self._change(found)
            return taken
        for record in records(batches[position]):
            if record.offset >= first:
                self.take(record)
        return 1

    def _change(self, found: Sequence[Change]) -> None:
        name, pending = b"", None
        for other, kind, at, offset, value in found:
            if pending is None or other != name:
                name, pending = other, self._queues.get(other) or self._pending(other)
            if pending is not None:
                pending.change(kind, at, offset, value)

    def _pending(self, name: bytes) -> _Pending | None:
        """A queue that is new in this step; None for an invalid name."""
        if name_problem(name):
            return None
        pending = self._queues[name] = _Pending(name, self._hash(name))
        return pending

    def take(self, record: DecodedRecord) -> None:
        """Apply a record; an invalid one is skipped."""
        name = record.key
        if name is None:
            self._take_due(record)
            return
        pending = self._queues.get(name) or self._pending(name)
        if pending is None:
            return
        if not record.headers:
            pending.entries.append((record.offset, body_of(record.timestamp, record.value)))
            return
        try:
            operation, times, request = operation_of(record), entry_times(record), request_of(record)
            owner = entry_owner(record)
        except ValueError:
            return
        if request is not None:
            kind = "enqueue" if operation is None else operation.kind
            first = Position(self._epoch, record.offset)
            row = RequestRow(request.time_ms, first, request.records, request.digest, kind)
            self._requests.append((self._hash(request.id), row))
        if operation is not None:
            self._operate(pending, operation, record)
            return
        if owner is not None:
            self._new[pending.queue] = owner
        key, headers = entry_parts(record)
        pending.entries.append((record.offset, body_of(record.timestamp, record.value, key, headers, times)))
        if any(times):
            self._rows.put(times_key(pending.queue), b"")
        for time_ms, becomes in zip(times, (_SHOWN, _EXPIRES), strict=True):
            if time_ms:
                self._rows.put(due_key(time_ms, pending.queue, record.offset), becomes)

    def _operate(self, pending: _Pending, operation: Operation, record: DecodedRecord) -> None:
        at, queue = operation.at.offset, pending.queue
        match operation.kind:
            case "replace":
                self._flush(pending)
                self._take_back(queue, operation, record.offset)
            case "purge" | "drop":
                self._flush(pending)
                self._empty(queue, record.offset, forget=operation.kind == "drop")
            case "trim":
                self._flush(pending)
                self._trim(queue, at)
            case "own":
                own = self._said.get(queue, (0, None))[1] if operation.own is None else operation.own
                self._said[queue] = operation.owner, own
            case "ack":
                pending.change("ack", at, record.offset, None)
            case "nack":
                delivered = Delivered(operation.deliveries, operation.until_ms)
                self._rows.put(delivery_key(queue, at), delivered_value(delivered))
                due = due_key(operation.until_ms, queue, at)
                if operation.until_ms and self._rows.get(due) is None:  # it may expire at that time
                    self._rows.put(due, _SHOWN)
            case "edit" | "delete":
                pending.change(operation.kind, at, record.offset, record.value)
            case _:
                pass

    def _take_due(self, record: DecodedRecord) -> None:
        """Remove entries that expire up to a time, and rows of the time index up to it."""
        try:
            operation = operation_of(record)
        except ValueError:
            return
        if operation is None or operation.kind != "due":
            return
        self._flush_all()
        expired = dict[bytes, dict[int, Overlay]]()
        for key, entry in list(due_entries(self._rows, operation.since_ms, operation.until_ms)):
            self._rows.put(key, None)
            if entry.expires:
                expired.setdefault(entry.queue, {})[entry.offset] = Overlay(record.offset, deleted=True, value=None)
        for queue, edits in expired.items():
            self._edit(queue, edits)

    def finish(self, next_offset: int) -> Mapping[bytes, bytes | None]:
        """The changes of rows."""
        self._flush_all()
        remember(self._rows, self._requests)
        account(self._rows, self._before, position_of(self._before).offset, self._new, self._said)
        self._totals.written(self._before, self._rows, next_offset)
        self._rows.put(POSITION_KEY, position_value(Position(max(0, self._epoch), next_offset)))
        return self._rows.changes

    # -- into rows ----------------------------------------------------------------------------------

    def _flush_all(self) -> None:
        for pending in self._queues.values():
            self._flush(pending)

    def _flush(self, pending: _Pending) -> None:
        self._flush_entries(pending)
        if pending.edits:
            edits, pending.edits = pending.edits, {}
            self._edit(pending.queue, edits)
        if pending.acks:
            acks, pending.acks = pending.acks, {}
            self._totals.acknowledged(self._rows, pending.queue, sorted(acks))
            self._delete(pending.queue, acknowledge(self._rows, pending.queue, acks))

    def _flush_entries(self, pending: _Pending) -> None:
        if pending.entries:
            entries, pending.entries = pending.entries, []
            queue, epoch = pending.queue, self._epoch
            self._rows.put(name_key(queue), pending.name)
            self._totals.added(body for _, body in entries)
            for last, data in runs(entries, epoch) if len(entries) > 1 else (single_run(*entries[0], epoch),):
                self._rows.put(run_key(queue, last), data)

    def _edit(self, queue: bytes, edits: dict[int, Overlay]) -> None:
        """Edit and delete entries; after deletions, acknowledged ranges may merge."""
        self._overlay(queue, edits, state_of(self._rows, queue))
        if any(edit.deleted for edit in edits.values()):
            state = state_of(self._rows, queue)
            if state.head or state.done:
                self._delete(queue, acknowledge(self._rows, queue, {}))

    def _delete(self, queue: bytes, gone: Mapping[int, int]) -> None:
        """Delete entries, each with the offset of its operation."""
        if gone:
            self._overlay(queue, {at: Overlay(offset, deleted=True, value=None) for at, offset in gone.items()})

    def _overlay(self, queue: bytes, edits: dict[int, Overlay], state: QueueState | None = None) -> None:
        """Change entries. Without a `state` the totals do not count them any more."""
        new = dict[int, Overlay]()  # written last: until then scans for other runs need not pass over them
        for run, offsets in runs_at(self._rows, queue, sorted(edits)):
            some = {at: edits[at] for at in offsets if run.index(at) >= 0}
            new |= self._edit_run(queue, run, some, state)
        for at, overlay in new.items():
            self._rows.put(overlay_key(queue, at), overlay_value(overlay))

    def _edit_run(
        self, queue: bytes, run: Run, edits: dict[int, Overlay], state: QueueState | None
    ) -> dict[int, Overlay]:
        """Change entries that are in a run; returns the overlays that it gets if it is not rewritten."""
        known = dict(overlays(self._rows, queue, run.first, run.last))
        new = {at: edit for at, edit in edits.items() if not (at in known and known[at].deleted)} if known else edits
        if state is not None:
            self._totals.edited(state, run, known, new)
        merged = known | new
        if _OVERLAID * len(merged) <= len(run.offsets):
            return new
        edited = edited_run(run.data, merged)
        if has_entries(edited):
            self._rows.put(run_key(queue, run.last), edited)
        else:
            self._rows.put(run_key(queue, run.last), None)
            self._move_head(queue, run)
            remove_rows(self._rows, delivery_key(queue, run.first), delivery_key(queue, run.last + 1))
        for at in known:
            self._rows.put(overlay_key(queue, at), None)
        return {}

    def _move_head(self, queue: bytes, run: Run) -> None:
        """A run was removed: if it was the first one, the head moves after it."""
        state = state_of(self._rows, queue)
        if next(self._rows.scan(run_key(queue, state.head), run_key(queue, run.last)), None) is None:
            done = tuple(one for one in state.done if one[0] > run.last)
            self._rows.put(state_key(queue), state_value(state._replace(head=run.last + 1, done=done)))

    def _take_back(self, queue: bytes, operation: Operation, offset: int) -> None:
        start = operation.at
        self._totals.removed(self._rows, queue, start.offset)
        for key, data in list(self._rows.scan(run_key(queue, start.offset), queue_end(b"r", queue))):
            self._rows.put(key, None)
            run = Run(data)
            kept = [one for one in run.bodies() if one[0] < start.offset]
            if kept:
                self._rows.put(run_key(queue, kept[-1][0]), next(runs(kept, run.leader_epoch, 1 << 40))[1])
        remove_rows(self._rows, overlay_key(queue, start.offset), queue_end(b"o", queue))
        remove_rows(self._rows, delivery_key(queue, start.offset), queue_end(b"d", queue))
        taken = HistoryRange(start, offset, operation.by, operation.reason)
        self._rows.put(state_key(queue), state_value(with_range(state_of(self._rows, queue), taken)))

    def _trim(self, queue: bytes, head: int) -> None:
        """Remove entries before an offset; the run at the offset is rewritten without most of them."""
        state = state_of(self._rows, queue)
        if head <= state.head:
            return
        self._totals.removed(self._rows, queue, end=head)
        done = tuple((max(first, head), last) for first, last in state.done if last >= head)
        self._rows.put(state_key(queue), state_value(state._replace(head=head, done=done)))
        drop_runs(self._rows, queue, state.head, head)
        remove_rows(self._rows, overlay_key(queue, state.head), overlay_key(queue, head))
        remove_rows(self._rows, delivery_key(queue, state.head), delivery_key(queue, head))
        found = next(self._rows.scan(run_key(queue, head), queue_end(b"r", queue)), None)
        run = None if found is None else Run(found[1])
        if run is not None and _OVERLAID * bisect_left(run.offsets, head) > len(run.offsets):
            kept = [one for one in run.bodies() if one[0] >= head]
            self._rows.put(run_key(queue, run.last), next(runs(kept, run.leader_epoch, 1 << 40))[1])

    def _empty(self, queue: bytes, offset: int, *, forget: bool) -> None:
        """Remove all entries of a queue; with `forget`, everything of it."""
        self._totals.removed(self._rows, queue)
        for kind in (b"r", b"o", b"d"):
            remove_rows(self._rows, kind + queue, queue_end(kind, queue))
        self._rows.put(times_key(queue), None)
        if forget:
            self._rows.put(name_key(queue), None)
            self._rows.put(state_key(queue), None)
        else:
            state = state_of(self._rows, queue)._replace(head=offset, done=())
            self._rows.put(state_key(queue), state_value(state))


def changes(found: Sequence[bytes], offset: int, rows: StateRows, hash_name: HashName) -> Mapping[bytes, bytes | None]:
    """The changes of rows, which have all before `offset`, by the records of whole batches."""
    step = _Step(rows, hash_name)
    next_offset, at = offset, 0
    while at < len(found):
        head = header(found[at])
        step.begin(head.leader_epoch, max(offset, head.base_offset))
        taken, new = split_runs(found, at, offset, RUN_BYTES)
        if taken:
            step.take_runs(new)
        else:
            taken = step.take_batches(found, at, offset)
        at += taken
        next_offset = max(next_offset, header(found[at - 1]).next_offset)
    return step.finish(next_offset)
