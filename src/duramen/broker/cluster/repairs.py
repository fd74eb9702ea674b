"""What the repair of this node's replicas asks of the controller and of other nodes, and what those ask here.

What nodes ask begins with a byte that no other request begins with; MessagePack follows. An answer is a byte that says
whether there are such batches, then the batches.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError, NodeEpochStale, NodeNotFound, RequestInvalid
from duramen.base.ids import StreamId
from duramen.base.ports import Buffer, Clock
from duramen.broker.cluster.network import Network
from duramen.broker.control.answers import Answer, Outcome
from duramen.broker.control.asking import Asker
from duramen.broker.control.requests import ReportDamage
from duramen.broker.partition import Partition
from duramen.broker.replicas.repairing import Piece, read_range
from duramen.codec.cluster.channels import Subject
from duramen.controller.cluster.alter_partition import Member
from duramen.controller.partitions import PartitionId
from duramen.storage.store import Store

__all__ = ["Repairs", "is_about_repairs", "serve_repair"]

_MARK: Final = b"\5"  # a number to MessagePack, where others have arrays
_LACKS, _HAS, _TOO_LARGE = b"\0", b"\1", b"\2"
_WITHIN_MS: Final = 10_000
_ANSWER_MS: Final = 3_000
_RETRY_MS: Final = 500


class _Wanted(msgspec.Struct, frozen=True, array_like=True):
    stream_id: bytes
    partition: int
    first: int
    last: int


_encoder: Final = msgspec.msgpack.Encoder()
_wishes: Final = msgspec.msgpack.Decoder(_Wanted)


def is_about_repairs(body: Buffer) -> bool:
    """Whether a request of another node is for `serve_repair`."""
    return bytes(body[:1]) == _MARK


class Repairs:
    """`Peers` of the replicas of one registration of this node, whose epoch is `broker_epoch`."""

    def __init__(
        self,
        node: Member,
        store: Store,
        clock: Clock,
        deadlines: Deadlines,
        network: Network,
        asker: Asker,
        *,
        when_applied: Callable[[int, Callable[[], None]], None],
        tell_again: Callable[[PartitionId], None],
        is_over: Callable[[], bool],
    ) -> None:
        self._node = node
        self._store = store
        self._clock = clock
        self._deadlines = deadlines
        self._network = network
        self._asker = asker
        self._when_applied = when_applied
        self._is_over = is_over
        self.tell_again = tell_again

    def report_damage(self, place: PartitionId, done: Callable[[], None]) -> None:
        """See `Peers`; asked again until the controller has answered, or the registration is over."""

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
        self, node_id: int, place: PartitionId, first: int, last: int, done: Callable[[Piece | None], None]
    ) -> None:
        """See `Peers`."""
        waiting: list[Callable[[Piece | None], None]] = [done]

        def answered(body: Buffer | None) -> None:
            if waiting and not self._is_over():
                late.cancel()
                waiting.pop()(_decode(body))

        late = self._deadlines.at(self._clock.monotonic_ms() + _ANSWER_MS, partial(answered, None))
        wish = _MARK + _encoder.encode(_Wanted(place.stream_id.bytes, place.partition, first, last))
        if not self._network.ask(node_id, wish, answered, subject=Subject.BROKER):
            self._store.soon(partial(answered, None))


def serve_repair(
    store: Store, partition_of: Callable[[PartitionId], Partition], body: Buffer, answer: Callable[[bytes], None]
) -> None:
    """Another node asks for what it lacks. Raises RequestInvalid where that cannot be read."""
    try:
        wish = _wishes.decode(body[len(_MARK) :])
        place = PartitionId(StreamId(bytes=wish.stream_id), wish.partition)
    except (msgspec.MsgspecError, ValueError) as error:
        raise RequestInvalid(f"a request about a damaged replica cannot be read: {error}") from None
    try:
        log = partition_of(place).log
    except DuramenError:
        answer(_LACKS)
        return
    read_range(store, log, wish.first, wish.last, lambda piece: answer(_encode(piece)))


def _encode(piece: Piece) -> bytes:
    if not piece.has:
        return _LACKS
    return _TOO_LARGE if piece.data is None else _HAS + piece.data


def _decode(body: Buffer | None) -> Piece | None:
    """None where nothing was answered: the node is not ready, or does not know of such requests."""
    status = b"" if body is None else bytes(body[:1])
    if body is None or status not in (_LACKS, _HAS, _TOO_LARGE):
        return None
    return Piece(has=status != _LACKS, data=None if status == _TOO_LARGE else bytes(body[1:]))
