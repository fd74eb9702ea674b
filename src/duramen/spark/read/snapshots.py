"""Keyed streams as snapshots, with `option("snapshot", …)`: each key once, at its newest record, without deletions.

The driver asks a node over HTTP which snapshot there is, and each task for pages of its range of a partition: record
batches with what the snapshot shows, and bits for those that have more.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlencode

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from duramen.base.errors import (
    BatchCorrupt,
    NodeBusy,
    NodeStarting,
    OptionInvalid,
    ServerUnreachable,
    SnapshotNotReached,
    SnapshotTooOld,
)
from duramen.client import TopicPartition
from duramen.client.cluster import RetryPatience, parse_servers
from duramen.client.consumer import EARLIEST
from duramen.client.http import DEFAULT_SERVER, HttpNode, path_of
from duramen.codec.shown_batches import BATCHES_TYPE, ShownPage, decode_page
from duramen.spark.batches.decoding import decode, say_which
from duramen.spark.columns import PartitionColumns
from duramen.spark.options import Options
from duramen.spark.plainly import said_plainly
from duramen.spark.read.parquet_files import Filing
from duramen.spark.read.plan import split
from duramen.spark.read.reader import cluster_of, columns_of, consumer_of
from duramen.spark.read.selection import Selection

__all__ = ["SnapshotPiece", "SnapshotReader", "reads_snapshot"]

_log = logging.getLogger("duramen.spark")

_PAGE_BYTES: Final = 8 * 1024 * 1024
_REFUSED: Final = (
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "tier", "tableStorage", "failOnDataLoss",
)  # fmt: skip
_VECTOR: Final = '{"0": 17}'

_T = TypeVar("_T")


def reads_snapshot(options: Options) -> bool:
    """Whether it is a snapshot that is read."""
    return options.text("snapshot").strip().lower() not in ("", "false")


class SnapshotPiece(InputPartition):
    """One task's share: of the snapshot at the offset `snapshot` of a partition what lies in `[first, end)`."""

    def __init__(self, at: TopicPartition, snapshot: int, first: int, end: int) -> None:
        super().__init__((at, snapshot, first, end))
        self.at = at
        self.snapshot = snapshot
        self.first = first
        self.end = end


class _There(NamedTuple):
    """The snapshots of a partition: of all offsets from `oldest` to `newest`."""

    oldest: int
    newest: int


class SnapshotReader(DataSourceReader):
    """Reads keyed streams as they are when the query is planned, or as they were."""

    def __init__(self, options: Options) -> None:
        """Raises OptionInvalid, SettingInvalid."""
        for name in _REFUSED:
            if options.given(name):
                raise OptionInvalid(f"{name} does not go with snapshot, which is the whole state at an offset")
        self._options = options
        self._selection = Selection(options)
        self._vector = _vector(options.text("snapshot"))
        self._server = _server(options)
        HttpNode(self._server)
        self._columns = columns_of(options)
        self._filing = Filing(options)
        self._timeout_s = (options.number("kafka.request.timeout.ms") or 0) / 1000
        say_which()
        for name in options.ignored:
            _log.warning("%s is for streaming queries: a batch goes on without it", name)

    @said_plainly()
    def partitions(self) -> list[InputPartition]:
        """A range of offsets for each task.

        Raises StreamNotFound, StreamNotKeyed, SnapshotTooOld, SnapshotNotReached, ServerUnreachable, OptionInvalid.
        """
        ats, _ = self._selection.find(cluster_of(self._options), all_of_them=True)
        node = HttpNode(self._server)
        there = {name: self._asked(node, name) for name in sorted({at.topic for at in ats})}
        snapshot = {at: there[at.topic][at.partition].newest for at in ats}
        if self._vector is not None:
            snapshot = _named(self._vector, ats, there)
        earliest = consumer_of(self._options).offsets(dict.fromkeys(ats, EARLIEST))
        spans = [(at, min(earliest[at], snapshot[at]), snapshot[at]) for at in ats]
        pieces = split(spans, self._options.number("minPartitions"), self._options.number("maxRecordsPerPartition"))
        return [SnapshotPiece(at, snapshot[at], first, end) for at, first, end in pieces]

    def _asked(self, node: HttpNode, stream: str) -> Mapping[int, _There]:
        answer = self._patiently(lambda: node.get(path_of("streams", stream) + "/snapshot"))
        return {part["partition"]: _There(part["oldest"], part["at"]) for part in answer["partitions"]}

    def _patiently(self, ask: Callable[[], _T]) -> _T:
        patience = RetryPatience(self._timeout_s)
        while True:
            try:
                return ask()
            except (NodeBusy, NodeStarting, ServerUnreachable) as error:
                patience.pause(error)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one share; Spark makes one without any where there is nothing to read."""
        return self._filing.rows(self._records(partition) if isinstance(partition, SnapshotPiece) else iter(()))

    def _records(self, piece: SnapshotPiece) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        part = PartitionColumns(*piece.at, self._columns)
        columns = tuple(dict.fromkeys((*part.columns, "value", "offset")))  # what decides about a record
        with said_plainly():
            for page in self._pages(piece):
                bits = pa.Array.from_buffers(pa.bool_(), 8 * len(page.bits), [None, pa.py_buffer(page.bits)])
                end = min(page.next_offset, piece.end, page.base + 8 * len(page.bits))
                try:
                    for rows in decode(page.batches, page.first, end, columns):
                        shown = bits.take(pc.subtract(rows.column("offset"), page.base))
                        kept = rows.filter(pc.and_(shown, pc.is_valid(rows.column("value"))))
                        if kept.num_rows:
                            yield part.batch(kept)
                except BatchCorrupt as error:
                    raise BatchCorrupt(f"{piece.at}: {error}") from None

    def _pages(self, piece: SnapshotPiece) -> Iterator[ShownPage]:
        node, offset = HttpNode(self._server), piece.first
        while offset < piece.end:
            asked = {
                "partition": piece.at.partition, "at": piece.snapshot, "offset": offset, "end": piece.end,
                "max_bytes": _PAGE_BYTES,
            }  # fmt: skip
            path = f"{path_of('streams', piece.at.topic)}/snapshot/records?{urlencode(asked)}"
            page = decode_page(self._patiently(partial(node.content, path, BATCHES_TYPE)))
            yield page
            offset = max(offset + 1, page.next_offset)


def _vector(text: str) -> dict[int, int] | None:
    """The offset of each partition that is named; None where the newest snapshot is wanted. Raises OptionInvalid."""
    if text.strip().lower() == "true":
        return None
    try:
        found = json.loads(text)
        vector = {int(partition): offset for partition, offset in found.items()}
    except (AttributeError, TypeError, ValueError):
        vector = {}
    whole = all(type(offset) is int and 0 <= offset < 1 << 63 for offset in vector.values())
    if not vector or not whole or min(vector) < 0:
        raise OptionInvalid(
            f"snapshot: {text!r} does not fit; it must be true, or JSON with the offset of each partition such as"
            f" {_VECTOR}"
        )
    return vector


def _named(
    vector: Mapping[int, int], ats: Sequence[TopicPartition], there: Mapping[str, Mapping[int, _There]]
) -> dict[TopicPartition, int]:
    """The vector, checked against the snapshots that there are."""
    if len(there) != 1:
        raise OptionInvalid(f"snapshot: a vector is of one stream, and these are {', '.join(there)}")
    odd = vector.keys() ^ {at.partition for at in ats}
    if odd:
        raise OptionInvalid(f"snapshot: the vector must name the partitions that are read; {min(odd)} is not in both")
    for at in ats:
        offset, (oldest, newest) = vector[at.partition], there[at.topic][at.partition]
        if offset < oldest:
            raise SnapshotTooOld(f"{at}: snapshots can be read from {oldest} on, and this one is at {offset}")
        if offset > newest:
            raise SnapshotNotReached(f"{at}: the newest snapshot is at {newest}, and this one would be at {offset}")
    return {at: vector[at.partition] for at in ats}


def _server(options: Options) -> str:
    """The HTTP address of a node: the option, the driver's environment, else beside the first Kafka address."""
    said = options.text("server") if options.given("server") else os.environ.get("DURAMEN_SERVER", "")
    if said:
        return said
    host, _ = parse_servers(options.text("kafka.bootstrap.servers"))[0]
    port = DEFAULT_SERVER.rpartition(":")[2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
