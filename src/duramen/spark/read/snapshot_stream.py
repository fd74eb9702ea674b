"""Streaming queries over keyed streams by snapshots: each micro-batch has the changes since the previous one.

The offsets in the checkpoint are snapshots: one offset per partition, and the lease that holds it open. The first
micro-batch starts without offsets, so it is a whole snapshot: a partition without an offset is read in full.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from duramen.base.errors import OptionInvalid, SnapshotCut, SnapshotStartOver, SnapshotTooOld, StreamNotFound
from duramen.client import TopicPartition
from duramen.client.cluster import RetryPatience
from duramen.client.consumer import EARLIEST
from duramen.spark.api import HAS_LIMITS, ReadLimit, SupportsTriggerAvailableNow
from duramen.spark.options import Options
from duramen.spark.plainly import without_traceback
from duramen.spark.read.exports import refuse_export
from duramen.spark.read.limits import BatchLimits
from duramen.spark.read.offsets import SourceOffsets
from duramen.spark.read.parquet_files import Filing
from duramen.spark.read.plan import SnapshotRange
from duramen.spark.read.prefetch import HandingOver, Prefetching
from duramen.spark.read.reader import cluster_of, commit_to_group, consumer_of
from duramen.spark.read.selection import Selection, starting
from duramen.spark.read.snapshot_leases import HeldLeases, LeaseOf
from duramen.spark.read.snapshot_node import KnownSnapshot, SnapshotPlace
from duramen.spark.read.snapshot_pages import SnapshotPages, SnapshotPartition, SnapshotPiece, pieces_of
from duramen.spark.read.snapshots import reads_snapshot, refuse
from duramen.spark.read.stream import StreamReader

__all__ = ["SnapshotStreamReader", "stream_reader_of"]

_log = logging.getLogger("duramen.spark")

_REFUSED: Final = ("tier", "tableStorage", "failOnDataLoss")
_STARTS: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
_ANEW: Final = "start a query with a new checkpoint and an empty sink; it begins with a whole snapshot"

_Document = dict[str, Any]


def stream_reader_of(options: Options) -> "SnapshotStreamReader | StreamReader":
    """The reader of a streaming query with these options. Raises OptionInvalid."""
    refuse_export(options)
    return SnapshotStreamReader(options) if reads_snapshot(options) else StreamReader(options)


class SnapshotStreamReader(HandingOver, SupportsTriggerAvailableNow):
    """Plans micro-batches, each one increment, and reads their parts."""

    def __init__(self, options: Options) -> None:
        """Raises OptionInvalid, SettingInvalid."""
        refuse(options, _REFUSED)
        if options.text("snapshot").strip().lower() != "true":
            raise OptionInvalid(
                "snapshot: a streaming query has one snapshot after the other, so it must be true; startingOffsets says"
                " behind which one it begins"
            )
        if not HAS_LIMITS:
            raise OptionInvalid("snapshot: streaming queries read snapshots with PySpark 4.2 and newer only")
        self._options = options
        self._selection = Selection(options)
        begins = any(options.given(name) for name in _STARTS)
        self._starting = starting(options, streaming=True) if begins else None
        self._limits = BatchLimits(options)
        if options.given("maxOffsetsPerTrigger"):
            _log.warning("maxOffsetsPerTrigger: with snapshot a micro-batch has all that changed")
        self._pages = SnapshotPages(options)
        self._filing = Filing(options)
        most = options.number("maxRecordsPerPartition")
        alone = options.given("minPartitions") or self._filing.is_asked
        self._ahead: Prefetching[SnapshotPiece] | None = None if alone else Prefetching(self._pages, most)
        self._leases = HeldLeases(self._pages.node)
        self._target: SourceOffsets | None = None  # with the trigger AvailableNow: the end of the query
        self._latest: SourceOffsets | None = None

    # -- offsets ------------------------------------------------------------------------------------

    @without_traceback()
    def initialOffset(self) -> _Document:
        """The start of a new query. Raises StreamNotFound, ServerUnreachable, OptionInvalid."""
        ats, ids = self._selection.find(cluster_of(self._options), all_of_them=True)
        begin: dict[TopicPartition, int] = {}
        if self._starting is not None and self._starting.everywhere != EARLIEST:
            named = self._starting.offsets or {}
            found = self._starting.resolve(consumer_of(self._options), ats)
            begin = {at: offset for at, offset in found.items() if named.get(at) != EARLIEST}
        return SourceOffsets(begin, ids).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of `minOffsetsPerTrigger`."""
        return self._limits.default

    @without_traceback()
    def prepareForTriggerAvailableNow(self) -> None:
        """Open the newest snapshot: the query ends there, without partitions added later."""
        self._target = self._held(SourceOffsets({}, {}), None)

    @without_traceback()
    def latestOffset(self, start: _Document, limit: ReadLimit) -> _Document:
        """The end of the next micro-batch: a snapshot, held open by a lease.

        Raises SnapshotStartOver, SnapshotCut, StreamNotFound, StreamNotKeyed, ServerUnreachable.
        """
        before = self._selection.own(start)
        for stream, lease in before.leases.items():
            self._leases.take_over(stream, lease)
        if self._target is None:
            end = self._held(before, limit)
        else:
            self._newest(before, before.at)
            end = self._target
        new = any(offset > before.at.get(at, 0) for at, offset in end.at.items())
        kept = end if new else before
        self._leases.end_others(frozenset(LeaseOf(*one) for one in kept.leases.items()))
        if not new:
            return start
        return end._replace(at={at: max(offset, before.at.get(at, 0)) for at, offset in end.at.items()}).to_json()

    def _held(self, before: SourceOffsets, limit: ReadLimit | None) -> SourceOffsets:
        """The newest snapshot, and leases that hold it open; `before` if there is nothing new, or too little yet."""
        patience = RetryPatience(cluster_of(self._options).timeout_s)
        while True:
            places, ids = self._newest(before, before.at)
            begin = {at: before.at.get(at, 0) for at in places}
            there = sum(max(0, place.at - begin[at]) for at, place in places.items())
            if limit is not None and (not there or self._limits.waits(there, limit)):
                return before
            at = {at: max(place.at, begin[at]) for at, place in places.items()}
            epochs = {at: place.epoch for at, place in places.items() if place.epoch >= 0 and place.at >= begin[at]}
            end = SourceOffsets(at, ids, epochs=epochs)
            try:
                return end._replace(leases={stream: self._lease(end, stream) for stream in ids})
            except SnapshotTooOld as error:
                patience.pause(error)  # with a short snapshot.retention.ms the oldest may already be a newer one

    def _lease(self, end: SourceOffsets, stream: str) -> str:
        opened = self._pages.node.open_lease(stream, _of(end.at, stream), _of(end.epochs, stream))
        self._leases.add(stream, opened)
        return opened.lease

    def _newest(
        self, known: SourceOffsets, since: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, SnapshotPlace], dict[str, str]]:
        """The newest snapshot, if the log has the `known` one, and the changes since another.

        Raises SnapshotStartOver, SnapshotCut and SnapshotNotReached if it does not, StreamNotKeyed, StreamNotFound.
        """
        ats, ids = self._selection.find(cluster_of(self._options), all_of_them=True)
        for stream, id_ in known.ids.items():
            if stream not in ids:
                raise StreamNotFound(f"stream {stream}, which this query has read, is not there any more: {_ANEW}")
            if id_ and ids[stream] and id_ != ids[stream]:
                raise SnapshotStartOver(f"stream {stream} was deleted and created again: {_ANEW}")
        try:
            of_streams = self._pages.node.newest(
                {name: KnownSnapshot(_of(known.at, name), _of(known.epochs, name)) for name in ids}
            )
        except SnapshotCut as error:
            raise SnapshotCut(f"{error}; {_ANEW}") from None
        places = {at: of_streams[at.topic][at.partition] for at in ats}
        self._latest = SourceOffsets({at: place.high_watermark for at, place in places.items()}, ids)
        for at, place in places.items():
            if at in since and since[at] < min(place.horizon, place.at):
                raise SnapshotStartOver(
                    f"{at} was read up to {since[at]}, and tombstones are kept from {place.horizon} on, so deletions"
                    f" since then may be missing: {_ANEW}"
                )
        return places, ids

    def reportLatestOffset(self) -> _Document | None:
        """The ends of the partitions at the last lookup, for the query's progress."""
        return None if self._latest is None else self._latest.to_json()

    # -- reading ------------------------------------------------------------------------------------

    @without_traceback()
    def partitions(self, start: _Document, end: _Document) -> Sequence[InputPartition]:
        """A range of offsets for each task. Raises like `latestOffset`."""
        before, after = self._selection.own(start), self._selection.own(end)
        since = {at: offset for at, offset in before.at.items() if after.at.get(at) != offset}
        self._newest(after._replace(ids=before.ids), since)
        ranges: dict[TopicPartition, SnapshotRange] = {}
        for stream in after.ids:
            for at, shown in self._shown(stream, after).items():
                if at in since or at not in before.at:
                    ranges[at] = SnapshotRange(since.get(at, 0), after.at[at], shown, since.get(at))
        pieces = pieces_of(self._options, ranges)
        self._handed = None if self._ahead is None else self._ahead.read(pieces)
        if self._handed is not None:
            return [SnapshotPartition(*pieces)]
        return [SnapshotPartition(piece) for piece in pieces]

    def _shown(self, stream: str, after: SourceOffsets) -> Mapping[TopicPartition, int]:
        """The snapshot for a micro-batch that ends at `after`: the one at `after`, while it can be held open."""
        wanted = {at: offset for at, offset in after.at.items() if at.topic == stream}
        if stream in after.leases and self._leases.take_over(stream, after.leases[stream]):
            return wanted
        patience = RetryPatience(cluster_of(self._options).timeout_s)
        shown, known = wanted, after.epochs
        while True:
            try:
                self._lease(after._replace(at=shown, epochs=known), stream)
            except SnapshotTooOld as error:
                if shown is not wanted:
                    patience.pause(error)
                newest = self._pages.node.newest({stream: KnownSnapshot()})[stream]
                shown, known = {at: max(newest[at.partition].at, offset) for at, offset in wanted.items()}, {}
            else:
                break
        if shown is not wanted:
            _log.warning(
                "stream %s: the lease on the last micro-batch has expired, so it is read without the keys that have"
                " newer records by now; these are in the next micro-batch", stream,
            )  # fmt: skip
        return shown

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one partition; Spark creates one without any if there is nothing to read."""
        pieces = partition.pieces if isinstance(partition, SnapshotPartition) else ()
        return self._filing.rows(rows for piece in pieces for rows in self._pages.read(piece))

    def commit(self, end: _Document) -> None:
        """Everything up to `end` is processed: commit it to the consumer group `kafka.group.id`, if it is set."""
        commit_to_group(self._options, SourceOffsets.from_json(end).at)

    def stop(self) -> None:
        """The query has ended; its leases last for a while, for a run that continues it."""
        self._leases.stop()
        cluster_of(self._options).close()


def _of(values: Mapping[TopicPartition, int], stream: str) -> dict[int, int]:
    return {at.partition: value for at, value in values.items() if at.topic == stream}
