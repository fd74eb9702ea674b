"""Readers of the live topic of a simulated cluster's keyed stream: each pass ends with a state that existed."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from duramen.base.errors import DuramenError, OffsetOutOfRange, StreamNotFound
from duramen.broker.fetch import FetchResult, PartitionFetch
from duramen.codec.batch import CONTROL, batches, records
from duramen.metadata.partitions import PartitionId
from duramen.service.broker import Broker
from duramen.sim.cluster.clients.calls import Reply, partition_at
from duramen.sim.cluster.clients.client import ClusterClient
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["LIVE_CONFIG", "LIVE_TOPIC", "LiveBook", "LiveReading"]

LIVE_TOPIC: Final = "keyed.live"
LIVE_CONFIG: Final = {"keyed.live.topic": LIVE_TOPIC, "delete.retention.ms": "3000"}

_SMALL_BYTES: Final = 300
_LARGE_BYTES: Final = 1 << 20
_WAIT_MS: Final = 50


class LiveBook(Protocol):
    """The known content of the stream."""

    def committed(self) -> int:
        """The end of the committed records."""

    def state(self, at: int) -> Mapping[bytes, bytes]:
        """The newest value of each key of the records below an offset."""


class _Connection:
    """A connection to a node: passes are kept by it."""


class LiveReading:
    """A consumer of the live topic, which continues at another node with the offset alone."""

    def __init__(self, client: ClusterClient, book: LiveBook, client_id: str) -> None:
        self._client = client
        self._book = book
        self._client_id = client_id
        self._connections: dict[tuple[int, int], _Connection] = {}
        self._start_over()

    def _start_over(self) -> None:
        self._offset = 0
        self._state: dict[bytes, bytes] = {}

    def fetch(self, node_id: int, place: PartitionId, reply: Reply) -> None:
        """Fetch once of the node; `reply` gets an error, or None."""
        client, offset = self._client, self._offset
        if client.chance.random() < 0.05:
            self._connections.clear()
        life = client.calls.nodes[node_id].life
        connection = self._connections.setdefault((node_id, life), _Connection())
        small = client.chance.random() < 0.5
        wait_ms = client.chance.choice((0, _WAIT_MS))

        def ask(broker: Broker, answer: Reply) -> None:
            partition = partition_at(broker, place)
            stream = broker.streams.find_id(place.stream_id)
            if stream is None:
                raise StreamNotFound("the stream is not known yet")
            view = broker.views.find(partition, stream)
            live = broker.live.reader(stream, partition, view, connection, self._client_id, offset)
            wanted = [PartitionFetch(partition, offset, _SMALL_BYTES if small else _LARGE_BYTES, live=live)]
            broker.fetches.fetch(
                wanted, min_bytes=1, max_bytes=_LARGE_BYTES, max_wait_ms=wait_ms, done=lambda found: answer(found[0])
            )

        def answered(value: Any) -> None:
            reply(value if isinstance(value, DuramenError) else self._taken(node_id, value))

        client.calls.ask(node_id, ask, answered)

    def _taken(self, node_id: int, found: FetchResult) -> DuramenError | None:
        """Apply a response. Raises BrokenPromise."""
        if found.error is not None:
            if isinstance(found.error, OffsetOutOfRange):
                self._client.calls.ended["live readers started over"] += 1
                self._start_over()
            return found.error
        who = f"node {node_id}: the pass of the live topic to {found.high_watermark}"
        view = memoryview(found.made or b"")
        for at, head in batches(view):
            if head.producer_id >= 0 or head.attributes & CONTROL:
                raise BrokenPromise(f"{who} has a batch of a producer, or a marker, at {head.base_offset}")
            for record in records(view[at : at + head.size]):
                if record.offset >= self._offset and record.key is not None:
                    self._state.pop(record.key, None)
                    if record.value is not None:
                        self._state[record.key] = record.value
            self._offset = max(self._offset, head.next_offset)
        if found.high_watermark > self._book.committed():
            raise BrokenPromise(f"{who} is shown, and committed is {self._book.committed()}")
        if self._offset == found.high_watermark:
            self._client.calls.ended["live passes read"] += 1
            if self._state != self._book.state(found.high_watermark):
                raise BrokenPromise(f"{who} ends with what is no state that existed")
        return None
