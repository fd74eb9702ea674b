"""The log behind a table, for tasks and their driver: its start, its end, and its records.

A record of a transaction counts at the commit marker, so the end of a table passes open transactions: their records
come with the span of their marker (`duramen.spark.read.transaction_boundaries`).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa

from duramen.base.errors import BatchCorrupt, RecordsLost
from duramen.client import BrokerCluster, Consumer, TopicPartition
from duramen.spark.batches.decoding import decode
from duramen.spark.columns import COMMIT_COLUMNS, RECORD_COLUMNS
from duramen.spark.options import Options
from duramen.spark.read.committed import CommittedRecords, CountedRecords, HeldBatch
from duramen.spark.read.reader import consumer_of
from duramen.spark.read.snapshot_pages import SnapshotPages, SnapshotPiece
from duramen.spark.translation.plan import RoundPiece

__all__ = ["SourceLog", "bounds", "newest_wait_ms", "read", "record_bytes"]

_FETCH_MS: Final = 0


class SourceLog(NamedTuple):
    """A stream, and its access. `skip_lost`: records that are lost during the read are skipped.

    `server`: the HTTP address of a node for snapshots; empty to read the log's own records.
    """

    servers: str
    stream: str
    stream_id: str
    skip_lost: bool = False
    server: str = ""


def _options(log: SourceLog) -> Options:
    given = {
        "kafka.bootstrap.servers": log.servers,
        "kafka.client.id": "duramen-table",
        "subscribe": log.stream,
    }
    if log.server:
        given["server"] = log.server
    return Options(given, "batch")


def read(log: SourceLog, piece: RoundPiece) -> Iterator[pa.RecordBatch]:
    """The records of a piece with every record column, and for those of transactions `COMMIT_COLUMNS`.

    For a keyed stream each key comes once, without these. Runs in tasks. Raises RecordsLost if some are lost,
    StreamNotFound if the stream was replaced, ServerUnreachable …
    """
    span, share = piece.span, piece.share
    if piece.increment is not None:
        asked = SnapshotPiece(TopicPartition(log.stream, span.partition), piece.increment, span.end - span.begin)
        yield from SnapshotPages(_options(log)).records(asked, RECORD_COLUMNS)
        return
    at = TopicPartition(log.stream, span.partition)
    first = span.begin if share is None else share.base
    committed = None if share is None else CommittedRecords(piece.since, span.end, share)

    def on_gap(wanted: int, there: int) -> int:
        upto = min(max(there, wanted), span.end)
        if not log.skip_lost:
            raise RecordsLost(f"{at}: the records {wanted} to {upto - 1} are gone from the log (retention)")
        return upto

    answers = consumer_of(_options(log)).read(
        at, first, span.end, topic_id=UUID(log.stream_id) if log.stream_id else None, on_gap=on_gap
    )
    try:
        for answer in answers:
            whole = CountedRecords(answer.toreadonly(), span.begin)
            for data, low, held in [whole] if committed is None else committed.pass_on(answer):
                for batch in decode(data, low, span.end, RECORD_COLUMNS):
                    yield _with_markers(batch, held) if held else batch
    except BatchCorrupt as error:
        raise BatchCorrupt(f"{at}: {error}") from None


def _with_markers(batch: pa.RecordBatch, held: Sequence[HeldBatch]) -> pa.RecordBatch:
    """The batch with the marker columns of each record's transaction; nulls outside transactions."""
    ranges = np.fromiter(chain.from_iterable(sorted(held)), np.int64, len(HeldBatch._fields) * len(held))
    ranges = ranges.reshape(len(held), -1)
    offsets = batch.column("offset").to_numpy()
    near = np.maximum(0, np.searchsorted(ranges[:, 0], offsets, side="right") - 1)
    outside = (offsets < ranges[near, 0]) | (offsets >= ranges[near, 1])
    for index, name in enumerate(COMMIT_COLUMNS, start=2):
        batch = batch.append_column(name, pa.array(ranges[near, index], mask=outside))
    return batch


def _consumer(cluster: BrokerCluster) -> Consumer:
    return Consumer(cluster, partition_max_bytes=64 * 1024)


def bounds(cluster: BrokerCluster, log: SourceLog) -> dict[int, tuple[int, int]]:
    """The first offset of each partition, and the one after the last.

    Raises StreamNotFound if the stream does not exist, or another one has its name; ServerUnreachable.
    """
    topic = cluster.topic(log.stream, fresh=True)
    if log.stream_id:
        cluster.check_id(log.stream, UUID(log.stream_id))
    found = _consumer(cluster).bounds([TopicPartition(log.stream, index) for index in topic.leaders])
    return {at.partition: both for at, both in found.items()}


def record_bytes(cluster: BrokerCluster, log: SourceLog, starts: Mapping[int, int]) -> float | None:
    """The average memory of a record, from the first ones from `starts` on; None without records."""
    rows = size_bytes = 0
    for batch in _first_ones(cluster, log, starts, RECORD_COLUMNS):
        rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
    return size_bytes / rows if rows else None


def newest_wait_ms(cluster: BrokerCluster, log: SourceLog, behind: Sequence[tuple[int, int]], now_ms: int) -> int:
    """The wait of the oldest record that a table lacks; `behind` has (partition, offset) of the first ones."""
    found = _first_ones(cluster, log, dict(behind), ("offset", "timestamp"))
    first_us: list[int] = [one.column("timestamp").cast(pa.int64())[0].as_py() for one in found]
    return max([0, *(now_ms - one // 1000 for one in first_us)])


def _first_ones(
    cluster: BrokerCluster, log: SourceLog, starts: Mapping[int, int], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """A few records of each partition that has any from there on."""
    positions = {TopicPartition(log.stream, partition): offset for partition, offset in starts.items()}
    for fetched in _consumer(cluster).fetch(positions, max_wait_ms=_FETCH_MS) if positions else ():
        first = positions[fetched.at]
        for piece in fetched.pieces[:1]:
            yield from islice(decode(piece.toreadonly(), first, first + (1 << 31), columns), 1)
