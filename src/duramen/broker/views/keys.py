"""Searches for records without a key on a cluster: each leader searches its own partitions."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Final

import msgspec

from duramen.base.errors import DuramenError, NotLeader, StreamNotFound
from duramen.base.ids import StreamId
from duramen.broker.streams import BrokerStreams, Stream
from duramen.broker.views.unkeyed_records import UnkeyedSearch
from duramen.metadata.partitions import PartitionId
from duramen.rpc.caller import Caller
from duramen.rpc.methods import Method
from duramen.rpc.retry import KnownLeader, Retrying, RetryPace, Underway
from duramen.rpc.server import Done
from duramen.storage.store import Store

__all__ = ["FIND_UNKEYED", "AllKeyed", "ClusterKeys", "FindUnkeyed"]

_WITHIN_MS: Final = 60_000
_PACE: Final = RetryPace(_WITHIN_MS, 20, 500)


class FindUnkeyed(msgspec.Struct, frozen=True, array_like=True):
    """The leader of a partition is to refuse where its log has a record without a key."""

    stream_id: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    partition: Annotated[int, msgspec.Meta(ge=0)]


class AllKeyed(msgspec.Struct, frozen=True, array_like=True):
    """There is none."""


FIND_UNKEYED: Final = Method("find-unkeyed", FindUnkeyed, AllKeyed, idempotent=True, deadline_ms=_WITHIN_MS)


class ClusterKeys:
    """Asks the leaders of a stream's partitions, and answers as one."""

    def __init__(
        self, streams: BrokerStreams, store: Store, caller: Caller, leader: Callable[[PartitionId], KnownLeader]
    ) -> None:
        """`leader` is the leader of a partition, as far as this node knows."""
        self._streams = streams
        self._store = store
        self._caller = caller
        self._leader = leader
        caller.server.handle(FIND_UNKEYED, self._search)

    def check(self, stream: Stream, done: Callable[[DuramenError | None], None]) -> None:
        """`done` gets ConfigInvalid, which names a record without a key, or None; one partition after another."""
        self._check(stream, list(range(len(stream.partitions))), done)

    def _check(self, stream: Stream, left: list[int], done: Callable[[DuramenError | None], None]) -> None:
        if not left:
            done(None)
            return
        index, *later = left

        def answered(outcome: AllKeyed | DuramenError) -> None:
            if isinstance(outcome, DuramenError):
                done(outcome)
            else:
                self._check(stream, later, done)

        request, place = FindUnkeyed(stream.id.bytes, index), PartitionId(stream.id, index)
        Retrying(
            partial(self._ask, request), partial(self._leader, place), _PACE, self._caller.clock,
            self._caller.deadlines, answered, idempotent=True,
        ).begin()  # fmt: skip

    def _ask(self, request: FindUnkeyed, known: KnownLeader, left_ms: int, answered: Done[AllKeyed]) -> Underway:
        if known.node_id is None:
            raise NotLeader("the partition has no leader at present: retry")
        self._caller.call(known.node_id, FIND_UNKEYED, request, answered, left_ms)
        return Underway(known.node_id)

    def _search(self, request: FindUnkeyed, done: Done[AllKeyed]) -> None:
        stream = self._streams.find_id(StreamId(bytes=request.stream_id))
        if stream is None:
            raise StreamNotFound("there is no such stream")
        partition = stream.partition(request.partition)
        partition.check_leads()

        def searched(error: DuramenError | None) -> None:
            done(AllKeyed() if error is None else error)

        UnkeyedSearch(stream, self._store, searched, [partition]).start()
