"""Leases on snapshots as a coordinator shard: opened, renewed, closed, and expired by the clock. Pure.

An expired lease is remembered for a day, so that a client that returns with it learns when it expired; if there are too
many, it is forgotten at once.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from duramen.base.errors import NodeBusy
from duramen.base.ids import StreamId
from duramen.base.ports import StateRows
from duramen.codec.batch import DecodedRecord
from duramen.coordinators.lease.records import StoredLease, decode_lease, encode_lease
from duramen.coordinators.runtime.shard import Decision
from duramen.keyed.leases import Leases, SnapshotLease

__all__ = ["REMEMBERED_MS", "CloseLease", "Command", "EndLeases", "LeaseShard", "OpenLease", "RenewLease"]

REMEMBERED_MS: Final = 86_400_000
"""The period for which an expired lease is remembered."""

_MOST: Final = 100_000
_AT_ONCE: Final = 1000
_AGAIN_MS: Final = 1000
"""The delay before a failed write of expiries is tried again."""


class OpenLease(NamedTuple):
    """Hold a snapshot open."""

    stream_id: StreamId
    lease: SnapshotLease


class RenewLease(NamedTuple):
    """Extend a lease to `lease_ms` from now, never shorten it. The response is the lease."""

    stream_id: StreamId
    lease_id: str
    lease_ms: int


class CloseLease(NamedTuple):
    """Close a lease."""

    stream_id: StreamId
    lease_id: str


class EndLeases(NamedTuple):
    """Close all leases of a stream, and forget them."""

    stream_id: StreamId


class _Expire(NamedTuple):
    stream_id: StreamId
    lease_id: str


class _Forget(NamedTuple):
    stream_id: StreamId
    lease_id: str


Command: TypeAlias = OpenLease | RenewLease | CloseLease | EndLeases | _Expire | _Forget

_NOTHING: Final = Decision((), None)


class LeaseShard:
    """The leases of all streams, at most `most`."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._by_stream: dict[StreamId, Leases] = {}
        self._stream_of: dict[str, StreamId] = {}
        self._not_before_ms = 0

    # -- queries ------------------------------------------------------------------------------------

    def get(self, stream_id: StreamId, lease_id: str, now_ms: int) -> SnapshotLease:
        """An open lease of a stream. Raises SnapshotLeaseExpired or SnapshotLeaseNotFound."""
        return self._leases(stream_id).get(lease_id, now_ms)

    def all(self, stream_id: StreamId, now_ms: int) -> Sequence[SnapshotLease]:
        """The open leases of a stream."""
        return [lease for lease in self._leases(stream_id).all() if lease.expires_ms > now_ms]

    def oldest(self, stream_id: StreamId, partition: int) -> int | None:
        """The oldest held position of a partition; None if none is held."""
        return self._leases(stream_id).oldest(partition)

    def knows(self, stream_id: StreamId) -> bool:
        """Whether the stream has leases, or had some within the last day."""
        return stream_id in self._by_stream

    # -- deciding -----------------------------------------------------------------------------------

    def keys_of(self, command: Command) -> Collection[Hashable]:
        match command:
            case OpenLease() | EndLeases():
                return ()
            case _:
                return (command.lease_id,)

    def decide(self, command: Command, rows: StateRows, now_ms: int) -> Decision:
        del rows
        match command:
            case OpenLease(stream_id, lease):
                if sum(map(len, self._by_stream.values())) >= self._most:
                    raise NodeBusy(f"{self._most} leases on snapshots are open: close some, or wait until some expire")
                return Decision([encode_lease(StoredLease(stream_id, lease))], lease)
            case RenewLease(stream_id, lease_id, lease_ms):
                found = self.get(stream_id, lease_id, now_ms)
                renewed = found._replace(expires_ms=max(found.expires_ms, now_ms + lease_ms))
                return Decision([encode_lease(StoredLease(stream_id, renewed))], renewed)
            case CloseLease(stream_id, lease_id):
                return Decision([(self.get(stream_id, lease_id, now_ms).lease_id.encode(), None)], None)
            case EndLeases(stream_id):
                ended = [lease_id for lease_id, of in self._stream_of.items() if of == stream_id]
                return Decision([(lease_id.encode(), None) for lease_id in ended], None)
            case _Expire(stream_id, lease_id):
                return self._expire(stream_id, lease_id, now_ms)
            case _Forget(_, lease_id):
                return Decision([(lease_id.encode(), None)], None) if lease_id in self._stream_of else _NOTHING

    def _expire(self, stream_id: StreamId, lease_id: str, now_ms: int) -> Decision:
        lease = self._leases(stream_id).find(lease_id)
        if lease is None or lease.expires_ms > now_ms:
            return _NOTHING  # the lease was closed, renewed or expired meanwhile
        if len(self._stream_of) > 2 * self._most:
            return Decision([(lease_id.encode(), None)], None)
        return Decision([encode_lease(StoredLease(stream_id, lease, expired=True))], None)

    def _leases(self, stream_id: StreamId) -> Leases:
        found = self._by_stream.get(stream_id)
        return Leases() if found is None else found

    # -- applying -----------------------------------------------------------------------------------

    def apply(self, record: DecodedRecord) -> None:
        stored = decode_lease(record)
        lease_id = (record.key or b"").decode(errors="replace")
        if stored is None:
            self._drop(lease_id)
            return
        self._stream_of[lease_id] = stored.stream_id
        leases = self._by_stream.setdefault(stored.stream_id, Leases())
        if stored.expired:
            leases.expire(lease_id, stored.lease.expires_ms)
        else:
            leases.put(stored.lease)

    def _drop(self, lease_id: str) -> None:
        stream_id = self._stream_of.pop(lease_id, None)
        if stream_id is None:
            return
        leases = self._by_stream[stream_id]
        leases.remove(lease_id)
        leases.forget(lease_id)
        if leases.empty:
            del self._by_stream[stream_id]

    def loaded(self, rows: StateRows) -> Iterator[None]:
        del rows
        return iter(())

    # -- time ---------------------------------------------------------------------------------------

    def next_ms(self) -> int | None:
        times = list[int]()
        for leases in self._by_stream.values():
            end_ms, expired_ms = leases.next_end_ms(), leases.first_expired_ms()
            times += [] if end_ms is None else [end_ms]
            times += [] if expired_ms is None else [expired_ms + REMEMBERED_MS + 1]
        return max(min(times), self._not_before_ms) if times else None

    def due(self, now_ms: int) -> Iterable[Command]:
        self._not_before_ms = now_ms + _AGAIN_MS
        commands = list[Command]()
        for stream_id, leases in self._by_stream.items():
            commands += [_Expire(stream_id, lease.lease_id) for lease in leases.over(now_ms)]
            commands += [_Forget(stream_id, lease_id) for lease_id in leases.expired(now_ms - REMEMBERED_MS)]
        return commands[:_AT_ONCE]
