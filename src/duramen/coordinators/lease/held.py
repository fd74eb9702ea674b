"""The snapshots that leases hold in the partitions led here: S0 does not pass them.

A leader raises S0 only with a response that it requested from the lease coordinator in its own epoch. A lease stored
later is sent to the leader (`HOLD_SNAPSHOT`) before the client learns of it, and applies from then on, until a response
requested later includes or omits it.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from duramen.base.errors import DuramenError, NotLeader, StreamNotKeyed
from duramen.base.ids import StreamId
from duramen.base.ports import Clock
from duramen.broker.partition import Partition
from duramen.broker.streams import BrokerStreams
from duramen.broker.views.history import check_history
from duramen.broker.views.views import KeyedViews
from duramen.coordinators.lease.requests import (
    FIND_HELD,
    HOLD_SNAPSHOT,
    FindHeld,
    HeldSnapshots,
    HoldSnapshot,
    SnapshotHeld,
)
from duramen.rpc.caller import Caller
from duramen.rpc.retry import KnownLeader
from duramen.rpc.server import Done

__all__ = ["HeldPositions"]

_PACE_MS: Final = 500
_UNKNOWN: Final = 0

_Key = tuple[StreamId, int]


class _Answered(NamedTuple):
    epoch: int
    oldest: int | None


class _Held(NamedTuple):
    position: int
    before: int  # a response to this request, or a later one, includes it


class HeldPositions:
    """Asks the coordinator about all partitions at once, one request at a time."""

    def __init__(
        self, streams: BrokerStreams, views: KeyedViews, caller: Caller, clock: Clock,
        coordinator: Callable[[], KnownLeader | None],
    ) -> None:  # fmt: skip
        """`coordinator` returns the leader of the partition of leases; None if it does not exist, so no leases."""
        self._streams = streams
        self._views = views
        self._caller = caller
        self._clock = clock
        self._coordinator = coordinator
        self._answered: dict[_Key, _Answered] = {}
        self._held: dict[_Key, list[_Held]] = {}
        self._wanted: set[_Key] = set()
        self._asks = 0
        self._asking = False
        self._not_before_ms = 0
        caller.server.handle(HOLD_SNAPSHOT, self._hold)

    def oldest(self, stream_id: StreamId, index: int) -> int | None:
        """The oldest position held in a partition; 0 while that is unknown, None if none is held."""
        key, partition = (stream_id, index), self._partition(stream_id, index)
        coordinator = self._coordinator()
        held = [one.position for one in self._held.get(key, ())]
        if coordinator is not None:
            self._wanted.add(key)
            self._ask(coordinator)
            answered = self._answered.get(key)
            if partition is None or answered is None or answered.epoch != partition.leader_epoch:
                return _UNKNOWN
            held += [] if answered.oldest is None else [answered.oldest]
        return min(held, default=None)

    def _partition(self, stream_id: StreamId, index: int) -> Partition | None:
        stream = self._streams.find_id(stream_id)
        return None if stream is None or index >= len(stream.partitions) else stream.partitions[index]

    def _ask(self, coordinator: KnownLeader) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._asking or coordinator.node_id is None or now_ms < self._not_before_ms:
            return
        keys = [(key, partition) for key in self._wanted if (partition := self._partition(*key)) is not None]
        asked = [(key, partition.leader_epoch) for key, partition in keys if partition.leads]
        self._wanted.clear()
        self._answered = {key: known for key, known in self._answered.items() if self._partition(*key) is not None}
        self._not_before_ms = now_ms + _PACE_MS
        if not asked:
            return
        self._asking = True
        self._asks += 1
        number = self._asks

        def answered(answer: HeldSnapshots | DuramenError) -> None:
            self._asking = False
            if isinstance(answer, HeldSnapshots):
                self._take(number, asked, answer.oldest)

        request = FindHeld(tuple((key[0].bytes, key[1], epoch) for key, epoch in asked))
        self._caller.call(coordinator.node_id, FIND_HELD, request, answered)

    def _take(self, number: int, asked: list[tuple[_Key, int]], oldest: tuple[int | None, ...]) -> None:
        for (key, epoch), one in zip(asked, oldest, strict=True):
            self._answered[key] = _Answered(epoch, one)
            later = [held for held in self._held.get(key, ()) if held.before > number]
            if later:
                self._held[key] = later
            else:
                self._held.pop(key, None)

    def _hold(self, request: HoldSnapshot, done: Done[SnapshotHeld]) -> None:
        key = StreamId(bytes=request.stream_id), request.partition
        partition, stream = self._partition(*key), self._streams.find_id(key[0])
        if partition is None or stream is None:
            raise NotLeader(f"this node does not know the stream {key[0]} yet")
        partition.check_leads()
        view = self._views.find(partition, stream)
        if view is None:
            raise StreamNotKeyed(f"stream {stream.name} is not keyed")
        check_history(partition, request.position, request.epoch)
        if partition.snapshots is None or not partition.snapshots.unite():
            raise NotLeader("the oldest snapshots of the other in-sync replicas are not known yet: retry")
        view.bounds.check_snapshot(request.position)
        self._held.setdefault(key, []).append(_Held(request.position, self._asks + 1))
        done(SnapshotHeld(partition.leader_epoch))
