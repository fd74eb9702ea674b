"""Leases on snapshots of this node's keyed streams, for the views and the doors."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from duramen.base.errors import CoordinatorLoading, DuramenError, NotCoordinator, StreamNotFound
from duramen.base.ids import StreamId
from duramen.base.ports import Clock
from duramen.broker.streams import BrokerStreams, Stream
from duramen.broker.views.history import check_history, epoch_before
from duramen.coordinators.lease.coordinator import page_of
from duramen.coordinators.lease.held import HeldPositions
from duramen.coordinators.lease.records import LEASES_STREAM
from duramen.coordinators.lease.requests import ASK_LEASE, AskLease, LeaseRow, LeasesFound
from duramen.coordinators.lease.shard import CloseLease, Command, EndLeases, LeaseShard, OpenLease, RenewLease
from duramen.coordinators.runtime.runtime import Runtime
from duramen.coordinators.runtime.shard import CoordinatorShard, ShardAnswer, ShardKind
from duramen.keyed.leases import SnapshotLease
from duramen.metadata.events import Event, StreamConfigured, StreamDeleted
from duramen.rpc.caller import Caller
from duramen.rpc.retry import KnownLeader, Retrying, RetryPace, Underway, unasked_as

__all__ = ["LEASES", "RemoteLeases", "SnapshotLeases", "position_of"]

_PARTITION: Final = 0
_PACE: Final = RetryPace(10_000, 20, 500)
_NONE_HERE: Final = "this node keeps no leases on snapshots"

Done = Callable[[Any], None]
"""Gets a lease, None, or an error."""

Ensure = Callable[[Callable[[DuramenError | None], None]], None]


def _make(_: int) -> CoordinatorShard[Command]:
    return LeaseShard()


LEASES: Final = ShardKind(LEASES_STREAM, _make)
"""The shard kind of leases, in one partition."""


class SnapshotLeases:
    """Before `use` there are no leases. On a cluster `join` sets the way to their coordinator."""

    def __init__(self, streams: BrokerStreams, clock: Clock) -> None:
        self._streams = streams
        self._clock = clock
        self._runtime: Runtime | None = None
        self._ensure: Ensure | None = None
        self._remote: RemoteLeases | None = None
        self._held: HeldPositions | None = None

    def join(self, remote: "RemoteLeases", held: HeldPositions) -> None:
        """The node is part of a cluster."""
        self._remote, self._held = remote, held

    def use(self, runtime: Runtime, ensure: Ensure) -> None:
        """Store leases through `runtime`, which must have the kind LEASES, in the stream that `ensure` creates."""
        self._runtime, self._ensure = runtime, ensure

    @property
    def ready(self) -> bool:
        """Whether the stream exists."""
        return self._streams.find(LEASES_STREAM) is not None

    def _shard(self) -> LeaseShard | None:
        found: LeaseShard | None = None if self._runtime is None else self._runtime.loaded(LEASES_STREAM, _PARTITION)
        return found

    def when_known(self, done: Callable[[DuramenError | None], None]) -> None:
        """Calls `done` once the leases are loaded, or with the reason why they cannot be."""
        if self._runtime is None:
            done(None)
        else:
            self._runtime.when_loaded(LEASES_STREAM, done)

    # -- queries ------------------------------------------------------------------------------------

    def oldest(self, stream_id: StreamId, partition: int) -> int | None:
        """The oldest position that a lease holds; 0 while that is unknown, None if none is held."""
        if self._held is not None:
            return self._held.oldest(stream_id, partition)
        if not self.ready:
            return None
        shard = self._shard()
        return 0 if shard is None else shard.oldest(stream_id, partition)

    def get(self, stream: Stream, lease_id: str) -> SnapshotLease:
        """An open lease. Raises SnapshotLeaseNotFound, SnapshotLeaseExpired, CoordinatorLoading."""
        return self._known().get(stream.id, lease_id, self._clock.wall_ms())

    def all(self, stream: Stream) -> Sequence[SnapshotLease]:
        """The open leases of a stream. Raises CoordinatorLoading."""
        return self._known().all(stream.id, self._clock.wall_ms())

    def _known(self) -> LeaseShard:
        if not self.ready:
            return LeaseShard()
        shard = self._shard()
        if shard is None:
            raise CoordinatorLoading("leases are still being loaded")
        return shard

    def find(self, stream: Stream, lease_id: str, done: Done) -> None:
        """`done` gets an open lease, or SnapshotLeaseNotFound, SnapshotLeaseExpired …"""
        if self._remote is not None and self.ready:
            self._remote.ask(AskLease("get", stream.id.bytes, lease_id), _one(done))
        else:
            self._once_known(lambda: self.get(stream, lease_id), done)

    def page(self, stream: Stream, after: tuple[int, str], limit: int, done: Done) -> None:
        """`done` gets LeasesFound: open leases in the order of their opening."""
        if self._remote is not None and self.ready:
            self._remote.ask(AskLease("list", stream.id.bytes, after=after, limit=limit), done)
        else:
            now_ms = self._clock.wall_ms()
            self._once_known(lambda: page_of(self._known(), stream.id, after, limit, now_ms), done)

    def _once_known(self, find: Callable[[], object], done: Done) -> None:
        def known(error: DuramenError | None) -> None:
            try:
                outcome = find() if error is None else error
            except DuramenError as refusal:
                outcome = refusal
            done(outcome)

        self.when_known(known)

    # -- changes ------------------------------------------------------------------------------------

    def open(
        self, stream: Stream, lease_id: str, positions: Mapping[int, int], done: Done,
        epochs: Mapping[int, int] | None = None,
    ) -> None:  # fmt: skip
        """Hold a snapshot open from now on; `done` gets the lease once it is durable.

        On a standalone node the caller keeps S0 from passing the snapshot meanwhile; on a cluster the leaders of the
        partitions refuse a snapshot that S0 has passed. `epochs` are those of the records before the positions.
        """
        now_ms = self._clock.wall_ms()
        expires_ms = now_ms + _lease_ms(stream)
        if epochs is None:
            epochs = {index: epoch_before(stream.partition(index), position) for index, position in positions.items()}
        lease, remote = SnapshotLease(lease_id, positions, expires_ms, now_ms, epochs), self._remote

        def ensured(error: DuramenError | None) -> None:
            if error is not None:
                done(error)
            elif remote is not None:
                remote.ask(AskLease("open", stream.id.bytes, lease=LeaseRow.of(lease)), _one(done))
            else:
                self._submit(OpenLease(stream.id, lease), done)

        if self._ensure is None:
            done(NotCoordinator(_NONE_HERE))
        else:
            self._ensure(ensured)

    def renew(self, stream: Stream, lease_id: str, done: Done) -> None:
        """Extend a lease to `snapshot.lease.ms` from now; `done` gets the lease."""
        lease_ms = _lease_ms(stream)
        if self._remote is not None and self.ready:
            self._remote.ask(AskLease("renew", stream.id.bytes, lease_id, lease_ms), _one(done))
        else:
            self._change(stream, lease_id, RenewLease(stream.id, lease_id, lease_ms), done)

    def close(self, stream: Stream, lease_id: str, done: Done) -> None:
        """Close a lease."""
        if self._remote is not None and self.ready:
            self._remote.ask(AskLease("close", stream.id.bytes, lease_id), _one(done))
        else:
            self._change(stream, lease_id, CloseLease(stream.id, lease_id), done)

    def _change(self, stream: Stream, lease_id: str, command: Command, done: Done) -> None:
        if self.ready:
            self._submit(command, done)
            return
        try:
            self.get(stream, lease_id)
        except DuramenError as error:
            done(error)

    def _submit(self, command: Command, done: Done) -> None:
        def answered(answer: ShardAnswer | DuramenError) -> None:
            done(answer.response if isinstance(answer, ShardAnswer) else answer)

        def loaded(error: DuramenError | None) -> None:
            if error is not None:
                done(error)
            elif self._runtime is None:
                done(NotCoordinator(_NONE_HERE))
            else:
                self._runtime.submit(LEASES_STREAM, _PARTITION, command, answered)

        self.when_known(loaded)

    def on_event(self, event: Event | None) -> None:
        """A metadata event is applied: leases of a stream that is no longer keyed end."""
        if not self.ready or not isinstance(event, StreamDeleted | StreamConfigured):
            return
        if self._remote is not None and self._shard() is None:
            return  # the coordinator's node ends them
        stream_id = StreamId(event.id)
        stream = self._streams.find_id(stream_id)
        if stream is None or not stream.keyed:
            shard = self._shard()
            if shard is None or shard.knows(stream_id):
                self._submit(EndLeases(stream_id), lambda _: None)


class RemoteLeases:
    """Sends requests to the coordinator of leases, on any node."""

    def __init__(self, caller: Caller, coordinator: Callable[[], KnownLeader | None]) -> None:
        self._caller = caller
        self._coordinator = coordinator

    def ask(self, request: AskLease, done: Done) -> None:
        """`done` gets LeasesFound, or the error; NotCoordinator if there is no coordinator for too long."""
        Retrying(
            partial(self._attempt, request), self._leader, _PACE, self._caller.clock, self._caller.deadlines,
            lambda outcome: done(unasked_as(NotCoordinator, outcome)), idempotent=True,
        ).begin()  # fmt: skip

    def _leader(self) -> KnownLeader:
        return self._coordinator() or KnownLeader(None, -1)

    def _attempt(self, request: AskLease, known: KnownLeader, left_ms: int, answered: Done) -> Underway:
        if known.node_id is None:
            raise NotCoordinator("leases on snapshots have no coordinator at present: retry")
        self._caller.call(known.node_id, ASK_LEASE, request, answered, left_ms)
        return Underway(known.node_id)


def _one(done: Done) -> Done:
    """A callback that gets the single lease of a response; None if it is closed."""

    def found(outcome: LeasesFound | DuramenError) -> None:
        if isinstance(outcome, DuramenError):
            done(outcome)
        else:
            done(outcome.leases[0].lease() if outcome.leases else None)

    return found


def _lease_ms(stream: Stream) -> int:
    return stream.config.integer("snapshot.lease.ms")


def position_of(stream: Stream, index: int, lease: SnapshotLease) -> int:
    """The position of a lease in a partition. Raises StreamNotFound, or SnapshotCut if records of it were truncated."""
    position = lease.positions.get(index)
    if position is None:
        raise StreamNotFound(f"the snapshot of the lease {lease.lease_id} has no partition {index}")
    check_history(stream.partition(index), position, lease.epochs.get(index, -1))
    return position
