"""The hot path of Produce: a request with one batch for one partition of a standalone node, in few steps.

It decides like `produce`; a request that might be decided differently takes that path. Requests of one turn of the
event loop are appended together at its end, or before a request that takes the ordinary path. Responses that one sync
releases are encoded together, and leave each connection in one call.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from duramen.base.errors import DuramenError
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.batch import Header
from duramen.codec.kafka.header import RequestHeader
from duramen.codec.kafka.hot_produce import encode_answer, reader
from duramen.codec.kafka.versions import ApiKey
from duramen.doors.kafka.connection.memory import RequestMemory
from duramen.doors.kafka.records.produce import PendingProduce
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.exchange import Exchange, HotChannel
from duramen.doors.kafka.request.metrics import RequestMetrics
from duramen.service.admission import Service
from duramen.service.broker import Broker

__all__ = ["HotPath"]

_PLACE: Final = 0
_CROWD: Final = 8
_new = tuple.__new__  # of a NamedTuple, without the call that its own takes


class _HotProduce(Exchange):
    """Such a request. Fields that only an error response needs are decoded then."""

    __slots__ = (
        "_acks", "_context", "_path", "base_offset", "batch", "correlation_id", "head", "hot_channel", "partition",
    )  # fmt: skip

    def __init__(
        self, path: "HotPath", channel: HotChannel, context: Context, correlation_id: int, version: int,
        client_id: str | None, acks: int, partition: Partition, batch: bytearray, head: Header, size: int,
        began_s: float,
    ) -> None:  # fmt: skip
        self.hot_channel = channel
        self.api_key = ApiKey.PRODUCE
        self.version = version
        self.client_id = client_id or ""
        self.size = size
        self.began_s = began_s
        self.partition = partition
        self.base_offset = -1
        self.abandoned = None
        self.answered = False
        self.batch = batch
        self.head = head
        self._path = path
        self._context = context
        self.correlation_id = correlation_id
        self._acks = acks

    def done(self, base_offset: int, error: DuramenError | None) -> None:
        """The batch is acknowledged or refused."""
        if error is None:
            self.base_offset = base_offset
            self._path.acknowledged([self])
            return
        header = RequestHeader(ApiKey.PRODUCE, self.version, self.correlation_id, self.client_id, 0)
        super().__init__(self.hot_channel, header, memoryview(b""), self.size, self.began_s)
        pending = PendingProduce(self._context, self, self._acks)
        places = pending.topic(self.partition.stream.name, 1)
        pending.done(places, _PLACE, self.partition, memoryview(self.batch), base_offset, error)
        pending.finish()


class HotPath:
    """The fast path of one door."""

    def __init__(
        self, broker: Broker, service: Service, memory: RequestMemory, measuring: RequestMetrics, largest_request: int
    ) -> None:
        """`largest_request` in bytes."""
        self._broker = broker
        self._store = broker.store
        self._clock = broker.clock
        self._topics = service.known_streams
        self._memory = memory
        self._measuring = measuring
        self._requests = measuring.requests(ApiKey.PRODUCE)
        self._largest = largest_request
        self._read = reader()
        self._turn: list[_HotProduce] = []  # not appended yet
        self._now_ms = 0
        self._acknowledged: list[_HotProduce] = []

    def take(self, channel: HotChannel, context: Context, data: memoryview, began_s: float) -> int:
        """Take in the usual Produce request that `data` begins with; its bytes, 0 where it is not that.

        `began_s` is when it was complete.
        """
        found = self._read(data)
        if found is None:
            return 0
        end, version, correlation_id, client_id, acks, topic, index, start, stop, fields = found
        stream = self._topics.get(topic)
        if not isinstance(stream, Stream) or stream.live_of is not None or not 0 <= index < len(stream.partitions):
            return 0
        turn, partition = self._turn, stream.partitions[index]
        if not turn and not self._may_begin():
            return 0
        head: Header = _new(Header, fields)
        if not partition.takes_as_is(stop - start, head.max_timestamp, self._now_ms):
            return 0
        size = end - 4
        if size > self._largest or not self._memory.try_take(size):
            return 0
        self._requests.value += 1
        exchange = _HotProduce(
            self, channel, context, correlation_id, version, client_id, acks, partition, bytearray(data[start:stop]),
            head, size, began_s,
        )  # fmt: skip
        channel.came(exchange)
        if not turn:
            self._store.soon(self.end_turn)
        turn.append(exchange)
        if len(turn) >= _CROWD and self._store.crowded:
            self.end_turn()
        return end

    def _may_begin(self) -> bool:
        """Whether a turn may have such requests; checked once for all of them."""
        self._now_ms = self._clock.wall_ms()
        # With quotas of producers, or batches refused of partitions that were not there, there is more to decide.
        return not (self._broker.quotas.bounds or self._broker.refused)

    def end_turn(self) -> None:
        """Append the batches of this turn, and have them synced."""
        turn, self._turn = self._turn, []
        if not turn:
            return
        groups: dict[Partition, list[_HotProduce]] = {}
        for exchange in turn:
            groups.setdefault(exchange.partition, []).append(exchange)
        for partition, exchanges in groups.items():
            partition.append_all(exchanges, partial(self._done, exchanges))
        self._store.flush()
        for partition, exchanges in groups.items():
            partition.count_all(exchanges)

    def _done(self, exchanges: Sequence[_HotProduce], error: DuramenError | None) -> None:
        """Batches that were appended together are acknowledged or refused."""
        if error is None:
            self.acknowledged(exchanges)
        else:
            for exchange in exchanges:
                exchange.done(-1, error)

    def acknowledged(self, exchanges: Sequence[_HotProduce]) -> None:
        """Batches are acknowledged: their answers go with those of the others that the same sync lets go."""
        if not self._acknowledged:
            self._store.after_release(self._answer)
        self._acknowledged += exchanges

    def _answer(self) -> None:
        exchanges, self._acknowledged = self._acknowledged, []
        channels: dict[HotChannel, None] = {}
        took_s: list[float] = []
        now_s = self._clock.seconds()
        for exchange in exchanges:
            partition = exchange.partition
            exchange.answer = encode_answer(
                exchange.version, exchange.correlation_id, partition.stream.name, partition.index,
                exchange.base_offset, partition.log.start_offset,
            )  # fmt: skip
            exchange.answered = True
            channels[exchange.hot_channel] = None
            took_s.append(now_s - exchange.began_s)
        for channel in channels:
            channel.send_ready()
        self._measuring.answered_all(ApiKey.PRODUCE, took_s)
