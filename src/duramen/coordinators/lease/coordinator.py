"""The lease coordinator on a cluster: the leader of the partition in which leases are stored.

A lease is granted once it is stored and the leader of each partition holds its snapshot. If one leader refuses, the
lease is closed again and the refusal is the response.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from duramen.base.countdown import ErrorCountdown
from duramen.base.errors import CoordinatorLoading, DuramenError, NotLeader
from duramen.base.ids import StreamId
from duramen.base.ports import Clock
from duramen.coordinators.lease.records import LEASES_STREAM
from duramen.coordinators.lease.requests import (
    ASK_LEASE,
    FIND_HELD,
    HOLD_SNAPSHOT,
    AskLease,
    FindHeld,
    HeldSnapshots,
    HoldSnapshot,
    LeaseRow,
    LeasesFound,
    SnapshotHeld,
)
from duramen.coordinators.lease.shard import CloseLease, Command, LeaseShard, OpenLease, RenewLease
from duramen.coordinators.runtime.runtime import Runtime
from duramen.coordinators.runtime.shard import ShardAnswer
from duramen.keyed.leases import SnapshotLease
from duramen.metadata.partitions import PartitionId
from duramen.rpc.caller import Caller
from duramen.rpc.retry import KnownLeader, Retrying, RetryPace, Underway
from duramen.rpc.server import Done

__all__ = ["LeaseCoordinator", "page_of"]

_PARTITION: Final = 0
_PACE: Final = RetryPace(5_000, 20, 500)


def page_of(shard: LeaseShard, stream_id: StreamId, after: tuple[int, str], limit: int, now_ms: int) -> LeasesFound:
    """Open leases in the order of their opening, after that place."""
    places = sorted((lease.opened_ms, lease.lease_id, lease) for lease in shard.all(stream_id, now_ms))
    behind = [lease for opened_ms, lease_id, lease in places if (opened_ms, lease_id) > after]
    return LeasesFound(tuple(LeaseRow.of(lease) for lease in behind[:limit]), len(behind) > limit)


class LeaseCoordinator:
    """Serves lease requests on the leader of the partition of leases."""

    def __init__(
        self, runtime: Runtime, caller: Caller, leader: Callable[[PartitionId], KnownLeader], clock: Clock
    ) -> None:
        self._runtime = runtime
        self._caller = caller
        self._leader = leader
        self._clock = clock
        self._asked: dict[tuple[bytes, int], int] = {}  # the newest leader epoch of each asking leader
        caller.server.handle(ASK_LEASE, self._ask)
        caller.server.handle(FIND_HELD, self._find)

    def _shard(self) -> LeaseShard:
        self._runtime.check(LEASES_STREAM, _PARTITION)
        shard: LeaseShard | None = self._runtime.loaded(LEASES_STREAM, _PARTITION)
        if shard is None:
            raise CoordinatorLoading("leases are still being loaded")
        return shard

    def _find(self, request: FindHeld, done: Done[HeldSnapshots]) -> None:
        shard, found = self._shard(), list[int | None]()
        for stream_id, partition, epoch in request.partitions:
            self._asked[stream_id, partition] = max(epoch, self._asked.get((stream_id, partition), -1))
            found.append(shard.oldest(StreamId(bytes=stream_id), partition))
        done(HeldSnapshots(tuple(found)))

    def _ask(self, request: AskLease, done: Done[LeasesFound]) -> None:
        stream_id, now_ms = StreamId(bytes=request.stream_id), self._clock.wall_ms()
        match request.what:
            case "open":
                if request.lease is not None:
                    self._open(stream_id, request.lease.lease(), done)
            case "renew":
                self._submit(RenewLease(stream_id, request.lease_id, request.lease_ms), _told(done))
            case "close":
                self._submit(CloseLease(stream_id, request.lease_id), _told(done))
            case "get":
                done(LeasesFound((LeaseRow.of(self._shard().get(stream_id, request.lease_id, now_ms)),)))
            case "list":
                done(page_of(self._shard(), stream_id, request.after, request.limit, now_ms))

    def _submit(self, command: Command, done: Callable[[Any], None]) -> None:
        def answered(answer: ShardAnswer | DuramenError) -> None:
            done(answer.response if isinstance(answer, ShardAnswer) else answer)

        self._runtime.submit(LEASES_STREAM, _PARTITION, command, answered)

    # -- opening ------------------------------------------------------------------------------------

    def _open(self, stream_id: StreamId, lease: SnapshotLease, done: Done[LeasesFound]) -> None:
        def stored(outcome: SnapshotLease | DuramenError) -> None:
            if isinstance(outcome, DuramenError):
                done(outcome)
            else:
                self._hold(stream_id, lease, done)

        self._submit(OpenLease(stream_id, lease), stored)

    def _hold(self, stream_id: StreamId, lease: SnapshotLease, done: Done[LeasesFound]) -> None:
        """Make each leader hold the snapshot; a leader that has been replaced meanwhile does not count."""

        def held(error: DuramenError | None) -> None:
            if error is not None:
                self._submit(CloseLease(stream_id, lease.lease_id), lambda _: done(error))
            else:
                done(LeasesFound((LeaseRow.of(lease),)))

        parts = ErrorCountdown(held, len(lease.positions) + 1)
        for index, position in lease.positions.items():
            request = HoldSnapshot(stream_id.bytes, index, position, lease.epochs.get(index, -1))
            Retrying(
                partial(self._ask_leader, request), partial(self._leader, PartitionId(stream_id, index)), _PACE,
                self._clock, self._caller.deadlines, parts.answer, idempotent=True,
            ).begin()  # fmt: skip
        parts.count_down()

    def _ask_leader(
        self, request: HoldSnapshot, known: KnownLeader, left_ms: int, answered: Done[SnapshotHeld]
    ) -> Underway:
        if known.node_id is None:
            raise NotLeader("the partition has no leader at present: retry")

        def held(outcome: SnapshotHeld | DuramenError) -> None:
            newest = self._asked.get((request.stream_id, request.partition), -1)
            if isinstance(outcome, SnapshotHeld) and outcome.leader_epoch < newest:
                outcome = NotLeader("a newer leader of the partition has requested the leases meanwhile: retry")
            answered(outcome)

        self._caller.call(known.node_id, HOLD_SNAPSHOT, request, held, left_ms)
        return Underway(known.node_id)


def _told(done: Done[LeasesFound]) -> Callable[[Any], None]:
    def told(outcome: SnapshotLease | DuramenError | None) -> None:
        if isinstance(outcome, DuramenError):
            done(outcome)
        else:
            done(LeasesFound(() if outcome is None else (LeaseRow.of(outcome),)))

    return told
