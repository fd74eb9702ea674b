"""The log that a table is made of, as tasks and their driver see it: where it begins and ends, and its records.

Transactions: a table's records are those of committed transactions, and its end never goes beyond the first open one.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import pyarrow as pa

from duramen.base.errors import BatchCorrupt, RecordsLost
from duramen.client import Cluster, Consumer, Isolation, TopicPartition
from duramen.spark.columns import RECORD_COLUMNS
from duramen.spark.decoding import decode
from duramen.spark.options import Options
from duramen.spark.reading import consumer_of
from duramen.spark.tables.port import Span

__all__ = ["Log", "bounds", "newest_wait_ms", "read"]

_FETCH_MS: Final = 0


class Log(NamedTuple):
    """A stream, and how to reach it. `skip_lost`: what is gone while it is read is left out."""

    servers: str
    stream: str
    stream_id: str
    skip_lost: bool = False


def _options(log: Log) -> Options:
    given = {
        "kafka.bootstrap.servers": log.servers,
        "kafka.isolation.level": "read_committed",
        "kafka.client.id": "duramen-table",
        "subscribe": log.stream,
    }
    return Options(given, "batch")


def read(log: Log, span: Span) -> Iterator[pa.RecordBatch]:
    """The records of a span with every column that records have. Runs in tasks.

    Raises RecordsLost where some are gone, StreamNotFound where the stream is another one now, ServerUnreachable …
    """
    at = TopicPartition(log.stream, span.partition)

    def on_gap(wanted: int, there: int) -> int:
        upto = min(max(there, wanted), span.end)
        if not log.skip_lost:
            raise RecordsLost(f"{at}: the records {wanted} to {upto - 1} went while they were read (retention)")
        return upto

    pieces = consumer_of(_options(log), committed=True).read(
        at, span.begin, span.end, topic_id=UUID(log.stream_id) if log.stream_id else None, on_gap=on_gap
    )
    try:
        for piece in pieces:
            yield from decode(piece.toreadonly(), span.begin, span.end, RECORD_COLUMNS)
    except BatchCorrupt as error:
        raise BatchCorrupt(f"{at}: {error}") from None


def _consumer(cluster: Cluster) -> Consumer:
    return Consumer(cluster, isolation=Isolation.READ_COMMITTED, partition_max_bytes=64 * 1024)


def bounds(cluster: Cluster, log: Log) -> dict[int, tuple[int, int]]:
    """The first offset of each partition, and the one before which all transactions are decided.

    Raises StreamNotFound where the stream is not there, or another one has its name; ServerUnreachable.
    """
    topic = cluster.topic(log.stream, fresh=True)
    if log.stream_id:
        cluster.check_id(log.stream, UUID(log.stream_id))
    found = _consumer(cluster).bounds([TopicPartition(log.stream, index) for index in topic.leaders])
    return {at.partition: both for at, both in found.items()}


def newest_wait_ms(cluster: Cluster, log: Log, behind: Sequence[tuple[int, int]], now_ms: int) -> int:
    """For how long the first records that a table lacks have waited; `behind` has (partition, offset) of them."""
    positions = {TopicPartition(log.stream, partition): offset for partition, offset in behind}
    waits = [0]
    for fetched in _consumer(cluster).fetch(positions, max_wait_ms=_FETCH_MS) if positions else ():
        first = positions[fetched.at]
        for piece in fetched.pieces[:1]:
            for batch in decode(piece.toreadonly(), first, first + (1 << 31), ("offset", "timestamp")):
                waits.append(now_ms - batch.column("timestamp").cast(pa.int64())[0].as_py() // 1000)
                break
    return max(waits)
