"""Queues of simulated clusters keep their promises, and the clients find planted bugs."""

from collections.abc import Callable, Collection
from itertools import chain
from typing import Any, Final

import pytest
from tests.sim.cluster.modes import hunt, keeps_promises
from tests.sim.planted import Bug, Place

from duramen.base.errors import DuramenError
from duramen.base.ids import Position
from duramen.base.ports import StateRows
from duramen.broker.partition import Partition
from duramen.broker.replicas.replica import Replica
from duramen.broker.streams import Stream
from duramen.codec.batch import DecodedRecord, Header
from duramen.coordinators.runtime import shard_replica
from duramen.coordinators.runtime.shard import BatchRowKind
from duramen.delivery.window import AcknowledgeType
from duramen.queues import changes, leases, machine, requests
from duramen.queues.leases import Leased, LeaseLimits, ShardLeases
from duramen.queues.names import Queue
from duramen.queues.operations import Operation
from duramen.queues.requests import RequestId
from duramen.queues.retention import Look, Retention, RetentionCounts
from duramen.queues.rows import HistoryRange, Overlay, queue_end, state_key, state_of, state_value, with_range
from duramen.queues.runs import QueueEntry, Run
from duramen.service import queue_leases
from duramen.storage.log.log import Log
from duramen.storage.store import AppendDone

Original = Callable[..., Any]

SEEDS: Final = (4,)
BOUNDED_SEEDS: Final = (4, 131, 171, 348, 424)
YOUNG_MS: Final = 300
CHECKPOINT_RECORDS: Final = 12
LONG_SEEDS: Final = range(1, 201)
NEARBY: Final = range(1, 41)


def _answer_stored(_: Original) -> Original:
    def store(self: Partition, batch: bytearray, head: Header, done: AppendDone) -> None:
        try:
            stored = done if self.role is None else self.role.accept(done, all_replicas=False)
        except DuramenError as error:
            done(-1, error)
        else:
            self._store.append(self.log, batch, head, self.leader_epoch, stored)

    return store


def _drop_overlays(original: Original) -> Original:
    def edited_run(run: bytes, overlays: dict[int, Overlay]) -> bytes:
        edited: bytes = original(run, {at: overlay for at, overlay in overlays.items() if overlay.deleted})
        return edited

    return edited_run


def _move_head_anyway(_: Original) -> Original:
    def _move_head(self: Any, queue: bytes, run: Run) -> None:
        state = state_of(self._rows, queue)
        self._rows.put(state_key(queue), state_value(state._replace(head=run.last + 1)))

    return _move_head


def _replace_half(_: Original) -> Original:
    def _take_back(self: Any, queue: bytes, operation: Operation, offset: int) -> None:
        taken = HistoryRange(operation.at, offset, operation.by, operation.reason)
        self._rows.put(state_key(queue), state_value(with_range(state_of(self._rows, queue), taken)))

    return _take_back


def _cut_early(_: Original) -> Original:
    def cut_offset(lowest_checkpoint: int, own_floor: int) -> int:
        return max(lowest_checkpoint, own_floor + CHECKPOINT_RECORDS)

    return cut_offset


def _cut_uncommitted(_: Original) -> Original:
    def _cut(self: Any, log: Log) -> None:
        if self._local is not None and self._kind.rows is not None:
            rows = self._kind.rows
            offset = shard_replica.cut_offset(self._local.lowest_checkpoint(), self._local.floor_offset)
            if isinstance(rows, BatchRowKind):
                keep_ms = rows.keep_ms(self.partition)
                offset = self._cuts.due(offset, rows.checkpoint_records, keep_ms, lambda _: 1)
            if offset - log.start_offset >= rows.checkpoint_records:
                self._parts.store.delete_before(log, offset, lambda _: None)

    return _cut


def _refuse_older_leases(_: Original) -> Original:
    def older_lease_counts(outcome: AcknowledgeType) -> bool:
        del outcome
        return False

    return older_lease_counts


def _lease_again(original: Original) -> Original:
    def lease(
        self: ShardLeases, rows: StateRows, queue: Queue, limits: LeaseLimits, now_ms: int, leader_epoch: int
    ) -> list[Leased]:
        self._books.clear()
        found: list[Leased] = original(self, rows, queue, limits, now_ms, leader_epoch)
        return found

    return lease


def _show_delayed(original: Original) -> Original:
    def entry_times(record: DecodedRecord) -> tuple[int, int]:
        _, expires_ms = original(record)
        return 0, expires_ms

    return entry_times


def _keep_some(original: Original) -> Original:
    def _empty(self: Any, queue: bytes, offset: int, *, forget: bool) -> None:
        first = next(self._rows.scan(b"r" + queue, queue_end(b"r", queue)), None)
        original(self, queue, offset, forget=forget)
        if first is not None:
            self._rows.put(*first)
            self._rows.put(state_key(queue), None)

    return _empty


def _forget_position(original: Original) -> Original:
    def request_of(space: Stream, text: str) -> RequestId | None:
        found: RequestId | None = original(space, text.rpartition("/")[0])
        return found

    return request_of


def _trim_young(_: Original) -> Original:
    def outdates(self: Retention, entry: QueueEntry, now_ms: int) -> bool:
        return self.ms >= 0 and entry.timestamp + min(self.ms, YOUNG_MS) <= now_ms

    return outdates


def _trim_more(original: Original) -> Original:
    def _trim(self: Any, queue: bytes, head: int) -> None:
        original(self, queue, head + 1)

    return _trim


def _never_stale(_: Original) -> Original:
    def written(self: RetentionCounts, keys: Collection[bytes]) -> None:
        del self, keys

    return written


def _count_to_the_last(original: Original) -> Original:
    def look(self: RetentionCounts, rows: StateRows, queue: bytes, kept: Retention, now_ms: int) -> Look:
        found: Look = original(self, rows, queue, kept, now_ms)
        if queue in self._counts:
            self._counts[queue].through = self._counts[queue].end
        return found

    return look


def _forget_requests(_: Original) -> Original:
    def made_before(rows: StateRows, hashed: bytes, digest: bytes) -> Position | None:
        del rows, hashed, digest
        return None

    return made_before


def _believe_clocks(_: Original) -> Original:
    def _counted_ms(before_ms: int, time_ms: int) -> int:
        return time_ms - before_ms

    return _counted_ms


def _lead_early(_: Original) -> Original:
    def _has_all(self: Replica) -> bool:
        del self
        return True

    return _has_all


STEP: Final = changes._Step
BUGS: Final = (
    Bug("answer-stored", "", (Place(Partition, "store", _answer_stored),), "answered before it is committed"),
    Bug("drop-overlays", "", (Place(changes, "edited_run", _drop_overlays),), "a run is written without its edits"),
    Bug("move-head", "", (Place(STEP, "_move_head", _move_head_anyway),), "the head goes past an entry"),
    Bug("replace-half", "", (Place(STEP, "_take_back", _replace_half),), "what was taken back is still there"),
    Bug(
        "older-leases",
        "",
        (Place(leases, "older_lease_counts", _refuse_older_leases),),
        "acks of an older epoch are lost",
    ),
    Bug("lease-again", "", (Place(ShardLeases, "lease", _lease_again),), "an entry is leased to two at a time"),
    Bug("show-delayed", "", (Place(changes, "entry_times", _show_delayed),), "a delayed entry is shown"),
    Bug("keep-some", "", (Place(STEP, "_empty", _keep_some),), "something is left after a purge or a drop"),
    Bug(
        "forget-position",
        "",
        (Place(queue_leases, "request_of", _forget_position),),
        "a dead letter is taken for another one, and lost",
    ),
    Bug(
        "cut-uncommitted",
        "",
        (Place(shard_replica.ShardReplica, "_cut", _cut_uncommitted),),
        "cut above the high watermark: replicas that are behind cannot catch up",
    ),
    Bug(
        "cut-early",
        "",
        (Place(shard_replica, "cut_offset", _cut_early),),
        "cut below a checkpoint that a replica lacks",
    ),
    Bug("forget-requests", "", (Place(machine, "made_before", _forget_requests),), "a repeated request is done twice"),
)

BOUNDED_BUGS: Final = (
    Bug("trim-young", "", (Place(Retention, "outdates", _trim_young),), "an entry younger than the limit is trimmed"),
    Bug("trim-more", "", (Place(STEP, "_trim", _trim_more),), "one of the newest entries is trimmed"),
    Bug("never-stale", "", (Place(RetentionCounts, "written", _never_stale),), "deleted entries count"),
    Bug(
        "count-to-last",
        "",
        (Place(RetentionCounts, "look", _count_to_the_last),),
        "an entry counts that was deleted beside a deleted last one",
    ),
    Bug(
        "cut-early",
        "",
        (Place(shard_replica, "cut_offset", _cut_early),),
        "cut below a checkpoint that a replica lacks",
    ),
    Bug(
        "believe-clocks",
        "",
        (Place(requests, "_counted_ms", _believe_clocks),),
        "request ids are forgotten when a clock jumps",
    ),
    Bug(
        "lead-early",
        "",
        (Place(Replica, "_has_all", _lead_early),),
        "a shard is loaded without the batches that wait for room in its log",
    ),
)

FOUND_BY: Final = {
    "answer-stored": 5, "drop-overlays": 1, "move-head": 1, "replace-half": 1, "cut-early": 1, "older-leases": 1,
    "lease-again": 1, "show-delayed": 1, "keep-some": 1, "forget-position": 1,
    "cut-uncommitted": 5, "forget-requests": 1,
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_queues_keep_their_promises(seed: int) -> None:
    keeps_promises(seed, queues=True)


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_seed_that_found_a_bug_finds_it_again(bug: Bug) -> None:
    assert hunt(bug, chain([FOUND_BY[bug.name]], NEARBY), queues=True) is not None


BOUNDED_FOUND_BY: Final = {
    "trim-young": 1, "trim-more": 1, "never-stale": 1, "count-to-last": 190, "cut-early": 1,
    "believe-clocks": 171, "lead-early": 131,
}  # fmt: skip


@pytest.mark.parametrize("seed", BOUNDED_SEEDS)
def test_queues_with_retention_keep_their_promises(seed: int) -> None:
    keeps_promises(seed, bounded_queues=True)


@pytest.mark.long
@pytest.mark.parametrize("bug", BOUNDED_BUGS, ids=lambda bug: bug.name)
def test_a_bug_of_retention_is_found_again(bug: Bug) -> None:
    assert hunt(bug, chain([BOUNDED_FOUND_BY[bug.name]], NEARBY), bounded_queues=True, stuck=False) is not None


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_queues_with_retention_of_many_clusters_keep_their_promises(seed: int) -> None:
    test_queues_with_retention_keep_their_promises(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_queues_of_many_clusters_keep_their_promises(seed: int) -> None:
    test_queues_keep_their_promises(seed)
