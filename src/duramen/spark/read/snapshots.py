"""Keyed streams as snapshots: `option("snapshot", …)`; each key once, at its newest record, without deletions.

The driver asks a node over HTTP for the snapshot, and each task for pages of its range of a partition: record batches
with the visible records, and bits for batches that have others too.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from duramen.base.errors import OptionInvalid, SnapshotNotReached, SnapshotTooOld
from duramen.client import TopicPartition
from duramen.client.consumer import EARLIEST
from duramen.spark.options import Options
from duramen.spark.plainly import without_traceback
from duramen.spark.read.offsets import parse_offsets
from duramen.spark.read.parquet_files import Filing
from duramen.spark.read.plan import SnapshotRange
from duramen.spark.read.reader import cluster_of, consumer_of, reads_committed
from duramen.spark.read.selection import Selection
from duramen.spark.read.snapshot_node import KnownSnapshot, SnapshotPlace
from duramen.spark.read.snapshot_pages import SnapshotPages, SnapshotPartition, pieces_of

__all__ = ["SnapshotReader", "reads_snapshot", "refuse"]

_log = logging.getLogger("duramen.spark")

_REFUSED: Final = (
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "tier", "tableStorage", "failOnDataLoss",
)  # fmt: skip
_VECTOR: Final = '{"0": 17}'
_VECTORS: Final = '{"flights": {"0": 17}}'


def reads_snapshot(options: Options) -> bool:
    """Whether the read is of a snapshot."""
    return options.text("snapshot").strip().lower() not in ("", "false")


def refuse(options: Options, names: tuple[str, ...]) -> None:
    """Raise OptionInvalid if one of these options, or the isolation level read_uncommitted, is given."""
    for name in names:
        if options.given(name):
            raise OptionInvalid(f"{name} does not go with snapshot, which is the whole state at an offset")
    if not reads_committed(options):
        raise OptionInvalid("kafka.isolation.level: snapshots have committed records only; leave the option out")


class SnapshotReader(DataSourceReader):
    """Reads a snapshot of keyed streams: the one at the time of planning, or an earlier one."""

    def __init__(self, options: Options) -> None:
        """Raises OptionInvalid, SettingInvalid."""
        refuse(options, _REFUSED)
        self._options = options
        self._selection = Selection(options)
        self._vector = _vector(options.text("snapshot"))
        self._pages = SnapshotPages(options)
        self._filing = Filing(options)
        for name in options.ignored:
            _log.warning("%s is for streaming queries: a batch ignores it", name)

    @without_traceback()
    def partitions(self) -> list[InputPartition]:
        """A range of offsets for each task.

        Raises StreamNotFound, StreamNotKeyed, SnapshotTooOld, SnapshotNotReached, ServerUnreachable, OptionInvalid.
        """
        ats, ids = self._selection.find(cluster_of(self._options), all_of_them=True)
        newest = self._pages.node.newest(dict.fromkeys(sorted(ids), KnownSnapshot()))
        there = {at: newest[at.topic][at.partition] for at in ats}
        snapshot = {at: place.at for at, place in there.items()}
        if self._vector is not None:
            snapshot = _named(self._vector, there)
        earliest = consumer_of(self._options).offsets(dict.fromkeys(ats, EARLIEST))
        ranges = {at: SnapshotRange(min(earliest[at], upto), upto, upto) for at, upto in snapshot.items()}
        return [SnapshotPartition(piece) for piece in pieces_of(self._options, ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one partition; Spark creates one without any if there is nothing to read."""
        pieces = partition.pieces if isinstance(partition, SnapshotPartition) else ()
        return self._filing.rows(rows for piece in pieces for rows in self._pages.read(piece))


def _vector(text: str) -> dict[TopicPartition, int] | None:
    """The offset of each named partition; None for the newest snapshot. Raises OptionInvalid.

    An unnamed stream is "".
    """
    if text.strip().lower() == "true":
        return None
    try:
        document = json.loads(text)
        of_one = bool(document) and not any(isinstance(value, dict) for value in document.values())
    except (AttributeError, ValueError):
        document, of_one = None, True
    try:
        vector = parse_offsets("snapshot", json.dumps({"": document} if of_one else document))
    except OptionInvalid:
        vector = {}
    if not vector or min(vector.values()) < 0:
        raise OptionInvalid(
            f"snapshot: {text!r} does not fit; it must be true, or JSON with the offset of each partition such as"
            f" {_VECTOR}, of several streams {_VECTORS}"
        )
    return vector


def _named(
    vector: Mapping[TopicPartition, int], there: Mapping[TopicPartition, SnapshotPlace]
) -> dict[TopicPartition, int]:
    """The vector, checked against the existing snapshots."""
    streams = sorted({at.topic for at in there})
    if any(not at.topic for at in vector):
        if len(streams) != 1:
            raise OptionInvalid(f"snapshot: the vector must name the streams, such as {_VECTORS}; these are"
                                f" {', '.join(streams)}")  # fmt: skip
        vector = {TopicPartition(streams[0], at.partition): offset for at, offset in vector.items()}
    odd = vector.keys() ^ there.keys()
    if odd:
        raise OptionInvalid(f"snapshot: the vector must name the partitions that are read; {min(odd)} is not in both")
    for at, place in there.items():
        offset = vector[at]
        if offset < place.oldest:
            raise SnapshotTooOld(f"{at}: snapshots can be read from {place.oldest} on, and this one is at {offset}")
        if offset > place.at:
            raise SnapshotNotReached(f"{at}: the newest snapshot is at {place.at}, and this one would be at {offset}")
    return {at: vector[at] for at in there}
