"""Requests of replica repair to the controller and to other nodes, and the responses to theirs."""

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError, NodeEpochStale, NodeNotFound, RequestInvalid
from duramen.base.ids import StreamId
from duramen.base.ports import Clock
from duramen.broker.control.requests import ReportDamage
from duramen.broker.control.responses import Answer, Outcome
from duramen.broker.partition import Partition
from duramen.broker.replicas.repair import RepairPiece, read_range
from duramen.controller.membership.client import Asker
from duramen.metadata.alter_partition import InSyncMember
from duramen.metadata.partitions import PartitionId
from duramen.rpc.caller import Caller
from duramen.rpc.methods import Method
from duramen.storage.store import Store

__all__ = ["FETCH_RANGE", "FetchRange", "RangePiece", "Repairs", "serve_range"]

_WITHIN_MS: Final = 10_000
_RETRY_MS: Final = 500


class FetchRange(msgspec.Struct, frozen=True, array_like=True):
    """Ask a node for the records `first` to `last` of its replica of a partition."""

    stream_id: bytes
    partition: int
    first: int
    last: int


class RangePiece(msgspec.Struct, frozen=True, array_like=True):
    """The replica's records: whole batches from `first` on; `data` is None if they are too large to send.

    `covers`: whether its log extends beyond `first`. Older nodes do not set it.
    """

    has: bool
    data: bytes | None
    covers: bool = True


FETCH_RANGE: Final = Method("fetch-range", FetchRange, RangePiece, idempotent=True)


class Repairs:
    """`Peers` for the replicas of one registration of this node, whose epoch is `broker_epoch`."""

    def __init__(
        self,
        node: InSyncMember,
        store: Store,
        clock: Clock,
        deadlines: Deadlines,
        caller: Caller,
        asker: Asker,
        *,
        when_applied: Callable[[int, Callable[[], None]], None],
        publish_again: Callable[[PartitionId], None],
        is_over: Callable[[], bool],
    ) -> None:
        self._node = node
        self._store = store
        self._clock = clock
        self._deadlines = deadlines
        self._caller = caller
        self._asker = asker
        self._when_applied = when_applied
        self._is_over = is_over
        self.publish_again = publish_again

    def report_damage(self, place: PartitionId, done: Callable[[], None]) -> None:
        """See `Peers`; retried until the controller has responded, or the registration is over."""

        def answered(outcome: Outcome) -> None:
            if self._is_over() or isinstance(outcome, NodeNotFound | NodeEpochStale):
                return
            if isinstance(outcome, Answer):
                self._when_applied(outcome.end_offset, done)
            else:
                self._deadlines.at(self._clock.monotonic_ms() + _RETRY_MS, ask)

        def ask() -> None:
            if not self._is_over():
                self._asker.ask(ReportDamage(self._node, (place,)), answered, within_ms=_WITHIN_MS)

        ask()

    def fetch_range(
        self, node_id: int, place: PartitionId, first: int, last: int, done: Callable[[RepairPiece | None], None]
    ) -> None:
        """See `Peers`."""

        def answered(outcome: RangePiece | DuramenError) -> None:
            if not self._is_over():
                found = None if isinstance(outcome, DuramenError) else RepairPiece(*msgspec.structs.astuple(outcome))
                self._store.soon(partial(done, found))

        self._caller.call(
            node_id, FETCH_RANGE, FetchRange(place.stream_id.bytes, place.partition, first, last), answered
        )


def serve_range(
    store: Store,
    partition_of: Callable[[PartitionId], Partition],
    asked: FetchRange,
    answer: Callable[[RangePiece | DuramenError], None],
) -> None:
    """Another node requests records that it lacks. Raises RequestInvalid."""
    try:
        place = PartitionId(StreamId(bytes=asked.stream_id), asked.partition)
    except ValueError as error:
        raise RequestInvalid(f"the id of a stream is not one: {error}") from None
    try:
        log = partition_of(place).log
    except DuramenError:
        answer(RangePiece(has=False, data=b""))
        return
    read_range(store, log, asked.first, asked.last, lambda piece: answer(RangePiece(*piece)))
