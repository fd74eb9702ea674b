"""The Spark task for keyed streams: reads pages of a snapshot or of changes since one. Runs on executors."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from duramen.base.errors import BatchCorrupt
from duramen.client import TopicPartition
from duramen.spark.batches.decoding import decode, warn_if_slow
from duramen.spark.columns import PartitionColumns
from duramen.spark.options import Options
from duramen.spark.plainly import without_traceback
from duramen.spark.read.plan import SnapshotRange, split
from duramen.spark.read.reader import columns_of
from duramen.spark.read.snapshot_node import SnapshotNode, server_of

__all__ = ["SnapshotPages", "SnapshotPartition", "SnapshotPiece", "pieces_of"]

_NEEDED: Final = ("value", "offset")
"""The columns that decide whether a record is shown."""


class SnapshotPiece(NamedTuple):
    """One task's piece of a range of the partition `of`, with about `records` at most."""

    of: TopicPartition
    range: SnapshotRange
    records: int


class SnapshotPartition(InputPartition):
    """The input of one task for Spark: pieces that are read one after another."""

    def __init__(self, *pieces: SnapshotPiece) -> None:
        super().__init__(pieces)
        self.pieces = pieces


def pieces_of(options: Options, ranges: Mapping[TopicPartition, SnapshotRange]) -> list[SnapshotPiece]:
    """The ranges in pieces, in number and size as the options say."""
    spans = [(of, one.first, one.end) for of, one in sorted(ranges.items())]
    found, begun = list[SnapshotPiece](), set[TopicPartition]()
    for of, first, end in split(spans, options.number("minPartitions"), options.number("maxRecordsPerPartition")):
        # Changes may be further back: a record of a transaction counts at its commit marker.
        low = first if of in begun else 0
        begun.add(of)
        found.append(SnapshotPiece(of, ranges[of]._replace(first=low, end=end), end - first))
    return found


class SnapshotPages:
    """Reads pieces according to the options. It is pickled and sent to the executors."""

    def __init__(self, options: Options) -> None:
        """Raises OptionInvalid, SettingInvalid."""
        self.node = SnapshotNode(server_of(options), (options.number("kafka.request.timeout.ms") or 0) / 1000)
        self._columns = columns_of(options)
        warn_if_slow()

    def read(self, piece: SnapshotPiece) -> Iterator[pa.RecordBatch]:
        """The piece's records, with every column that Spark expects. Raises like `records`."""
        part = PartitionColumns(*piece.of, self._columns)
        for rows in self.records(piece, part.columns):
            yield part.batch(rows)

    def records(self, piece: SnapshotPiece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The piece's records with these columns, and perhaps more; deletions only among changes.

        Raises SnapshotTooOld, SnapshotStartOver, BatchCorrupt, ServerUnreachable …
        """
        import pyarrow.compute as pc

        wanted = tuple(dict.fromkeys((*columns, *_NEEDED)))
        range_ = piece.range
        offset = range_.first
        asked = {"at": range_.at, "end": range_.end} | ({} if range_.since is None else {"since": range_.since})
        with without_traceback():
            while offset < range_.end:
                page = self.node.page(*piece.of, asked | {"offset": offset})
                bits = pa.Array.from_buffers(pa.bool_(), 8 * len(page.bits), [None, pa.py_buffer(page.bits)])
                end = min(page.next_offset, range_.end, page.base + 8 * len(page.bits))
                try:
                    for rows in decode(page.batches, page.first, end, wanted):
                        shown = bits.take(pc.subtract(rows.column("offset"), page.base))
                        if range_.since is None:
                            shown = pc.and_(shown, pc.is_valid(rows.column("value")))
                        kept = rows.filter(shown)
                        if kept.num_rows:
                            yield kept
                except BatchCorrupt as error:
                    raise BatchCorrupt(f"{piece.of}: {error}") from None
                offset = max(offset + 1, page.next_offset)
