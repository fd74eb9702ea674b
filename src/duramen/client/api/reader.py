"""Reads for Python programs: batches of records, fetch by fetch. Blocking; used by one thread at a time."""

import contextlib
import time
from typing import Final, NamedTuple

from duramen.base.errors import DuramenError, OffsetOutOfRange, RecordsLost
from duramen.base.positions import Position
from duramen.client.api.arguments import INT32_MAX, seconds, text, whole
from duramen.client.api.offset_ranges import OffsetRange, Where, find_stream, parse_where, spans
from duramen.client.api.records import Batch
from duramen.client.cluster import BrokerCluster, TopicPartition
from duramen.client.consumer import Consumer
from duramen.client.fetch_result import FetchedPartition
from duramen.client.interrupt import Interrupt
from duramen.client.places import partitions_of
from duramen.codec.batch import CONTROL, batches

__all__ = ["RecordReader", "WantedRecords", "wanted"]

_WAIT_MS: Final = 500


class WantedRecords(NamedTuple):
    """The records that a call wants."""

    stream: str
    first: Position
    end: Position | None
    partition: int | None
    idle_s: float | None


def wanted(
    stream: str, offset: Where, until: Where | None, partition: int | None, idle_s: float | None
) -> WantedRecords:
    """The arguments of `consume`, checked. Raises RequestInvalid."""
    return WantedRecords(
        text("stream", stream),
        parse_where(offset, "offset"),
        None if until is None else parse_where(until, "until"),
        None if partition is None else whole("partition", partition, 0, INT32_MAX),
        None if idle_s is None else seconds("idle_s", idle_s),
    )


class RecordReader:
    """Reads `wanted` records over connections of its own."""

    leaves = False
    """Whether `close` talks to the node, and may take some seconds."""

    def __init__(
        self, kafka: str, wanted: WantedRecords, *, timeout_s: float, client_id: str = "duramen-python"
    ) -> None:
        """`kafka` is the address of the Kafka door."""
        self.interrupt = Interrupt()
        """Set from any thread, it ends what is under way here with ClientClosed."""
        self.done = False
        """Whether everything that was wanted has been read."""
        self._wanted = wanted
        self._cluster = BrokerCluster(kafka, client_id=client_id, timeout_s=timeout_s, interrupt=self.interrupt)
        self._consumer = Consumer(self._cluster)
        self._spans: dict[TopicPartition, OffsetRange] | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._idle_since = time.monotonic()

    def next(self) -> list[Batch]:
        """The next batches, or none for now; then check `done`. Raises ServerUnreachable, RecordsLost …"""
        if self._spans is None:
            self._begin()
        found = (
            []
            if not self._positions
            else [batch for fetched in self._fetch() if (batch := self._take(fetched)) is not None]
        )
        if found:
            self._idle_since = time.monotonic()
        self.done = self._is_done()
        return found

    def _is_done(self) -> bool:
        return not self._positions or self._is_idle()

    def _is_idle(self) -> bool:
        idle_s = self._wanted.idle_s
        return idle_s is not None and time.monotonic() - self._idle_since >= idle_s

    def processed(self, batch: Batch) -> None:
        """Mark the batch as processed, for readers in groups."""

    def commit(self) -> None:
        """Commit processed batches, for readers in groups."""

    def _begin(self) -> None:
        partitions = partitions_of(find_stream(self._cluster, self._wanted.stream), self._wanted.partition)
        self._start(spans(self._consumer, partitions, self._wanted.first, self._wanted.end))

    def _start(self, spans: dict[TopicPartition, OffsetRange]) -> None:
        self._spans = spans
        self._positions = {at: span.first for at, span in spans.items() if span.first < span.end}
        self._idle_since = time.monotonic()

    def _fetch(self) -> list[FetchedPartition]:
        wait_ms = _WAIT_MS
        if self._wanted.idle_s is not None:
            left_s = self._idle_since + self._wanted.idle_s - time.monotonic()
            wait_ms = max(0, min(wait_ms, int(1000 * left_s)))
        try:
            return self._consumer.fetch(self._positions, max_wait_ms=wait_ms)
        except OffsetOutOfRange as error:
            raise self._lost(error) from None

    def _lost(self, error: OffsetOutOfRange) -> DuramenError:
        """The next records are gone: raise an error that names them."""
        with contextlib.suppress(DuramenError):
            for at, (low, high) in self._consumer.bounds(list(self._positions)).items():
                position = self._positions[at]
                if position < low:
                    return RecordsLost(f"{at}: the records {position} to {low - 1} were removed before they were read")
                if position > high:
                    return RecordsLost(f"{at} ends at {high} now, before {position}: was it made anew?")
        return error

    def _take(self, fetched: FetchedPartition) -> Batch | None:
        """The next fetched batch; partitions alternate, so that none waits for others."""
        first, end = self._positions.pop(fetched.at), (self._spans or {})[fetched.at].end
        if fetched.next_offset < end:
            self._positions[fetched.at] = fetched.next_offset
        there = any(
            not head.attributes & CONTROL and head.base_offset < end and head.next_offset > first
            for piece in fetched.pieces
            for _, head in batches(piece)
        )
        if not there:
            return None
        return Batch(fetched.at, fetched.pieces, first, end, min(end, fetched.next_offset))

    def close(self) -> None:
        """Close its connections."""
        self._cluster.close()
