"""`format("duramen")`: the data source class that Spark loads, and batch reads. Streams are in `streaming`."""

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from duramen.base.errors import DuramenError, OptionInvalid, TableAhead
from duramen.client import BrokerCluster, Consumer, TopicPartition
from duramen.client.cluster import RetryPatience
from duramen.client.consumer import LATEST
from duramen.client.transaction_states import MarkedUpTo
from duramen.spark.api import DataSourceStreamArrowWriter, Filter, to_arrow_schema
from duramen.spark.hangups import end_this_worker_quietly
from duramen.spark.options import Options
from duramen.spark.plainly import without_traceback
from duramen.spark.read.cold_files import read_part
from duramen.spark.read.exports import export_reader_of, reads_export
from duramen.spark.read.filters import EVERYTHING, narrow
from duramen.spark.read.joint_boundaries import ahead_of_others, cut_jointly, together
from duramen.spark.read.losses import begun_behind, log_start
from duramen.spark.read.markers import Marks
from duramen.spark.read.offset_ranges import TieredOffsets, Tiers
from duramen.spark.read.parquet_files import Filing
from duramen.spark.read.plan import Span
from duramen.spark.read.reader import (
    PartitionReader,
    cluster_of,
    consumer_of,
    reads_committed,
    report_lost,
    shared,
    tasks,
)
from duramen.spark.read.selection import Selection, ending, require_order, starting
from duramen.spark.read.snapshot_stream import stream_reader_of
from duramen.spark.read.snapshots import SnapshotReader, reads_snapshot
from duramen.spark.read.splits import Floors, behind_tables, passed_over
from duramen.spark.read.stream import RefusedStreamReader
from duramen.spark.read.transaction_boundaries import cut
from duramen.spark.write.sink import SinkBatchWriter, StreamWriter

__all__ = ["BatchReader", "DuramenDataSource", "FilteringReader", "batch_reader_of"]

_log = logging.getLogger("duramen.spark")

end_this_worker_quietly()  # Spark's planners and tasks import this

_NAME: Final = "duramen"
_PUSHING: Final = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module of the worker process to which Spark passes filters, with spark.sql.python.filterPushdown.enabled."""


Ends = Mapping[TopicPartition, int]


class _Joint(NamedTuple):
    """The known transactions over several streams, and the farthest consistent end.

    `ahead` are tables that can only be read completely and have more than the other streams.
    """

    marked: dict[TopicPartition, MarkedUpTo]
    sound: dict[TopicPartition, int]
    ahead: Sequence[str]


class DuramenDataSource(DataSource):
    """Streams of Duramen, and of any broker that speaks Kafka's protocol, with the columns of Spark's Kafka source."""

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return _NAME

    @without_traceback()
    def schema(self) -> str:
        """The columns; checks the options as far as possible without knowing the query."""
        options = Options(self.options, "source")
        if not reads_export(options):
            Selection(options)
        return Filing(options).ddl

    @without_traceback()
    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`, with `schema`, a part of the columns. Raises OptionInvalid."""
        options = _batch_options(self.options, schema)
        _require_own(schema, options)
        return batch_reader_of(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`. The reader raises errors of options: PySpark would hide an error raised here."""
        try:
            options = Options(self.options, "stream")
            _require_own(schema, options)
            return stream_reader_of(options)
        except DuramenError as error:
            return RefusedStreamReader(error)

    @without_traceback()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """For `df.write`. Raises OptionInvalid."""
        if overwrite:
            raise OptionInvalid('mode("overwrite") is not possible: a stream is only added to; say mode("append")')
        return SinkBatchWriter(Options(self.options, "sink"), schema)

    @without_traceback()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """For `df.writeStream`; `overwrite` (output mode complete) adds each result to the stream, as in Kafka's sink.

        Raises OptionInvalid.
        """
        del overwrite
        return StreamWriter(Options(self.options, "sink"), schema)


def batch_reader_of(options: Options) -> DataSourceReader:
    """The batch reader for these options. Raises OptionInvalid."""
    if reads_export(options):
        return export_reader_of(options)
    if reads_snapshot(options):
        return SnapshotReader(options)
    return FilteringReader(options) if _is_handed_filters() else BatchReader(options)


def _is_handed_filters() -> bool:
    """Whether Spark passes filters here: a reader that accepts filters is an error in any other process."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHING in sys.modules or (spec is not None and spec.name == _PUSHING)


def _batch_options(given: Mapping[str, str], schema: StructType) -> Options:
    """The `given` options, restricted to the columns of `schema` if these are a part of their own."""
    options = Options(given, "batch")
    filing, fields = Filing(options), list(to_arrow_schema(schema))
    own = list(filing.schema)
    if filing.is_asked or not fields or fields == own or any(field not in own for field in fields):
        return options
    others = {name: value for name, value in given.items() if name.lower() != "columns"}
    return Options(others | {"columns": ",".join(field.name for field in fields)}, "batch")


def _require_own(schema: StructType, options: Options) -> None:
    if not to_arrow_schema(schema).equals(Filing(options).schema):
        raise OptionInvalid("the format duramen has its own schema: leave out schema(…); the option columns chooses")


class BatchReader(DataSourceReader):
    """Reads the records that exist when the query is planned."""

    def __init__(self, options: Options) -> None:
        """Raises OptionInvalid."""
        self._options = options
        self._selection = Selection(options)
        self._starting = starting(options, streaming=False)
        self._ending = ending(options)
        require_order(self._starting, self._ending)
        self._reading = PartitionReader(options)
        self._filing = Filing(options)
        self._tiers = Tiers(options)
        self._narrowing = EVERYTHING
        for name in options.ignored:
            _log.warning("%s is for streaming queries: a batch ignores it", name)

    @without_traceback()
    def partitions(self) -> list[InputPartition]:
        """A range of offsets for each task.

        Raises errors of the connection, RecordsLost, StreamNotFound; TableAhead after the timeout.
        """
        cluster = cluster_of(self._options)
        patience = RetryPatience(cluster.timeout_s)
        while True:
            try:
                return self._planned(cluster)
            except TableAhead as error:
                patience.pause(error)

    def _planned(self, cluster: BrokerCluster) -> list[InputPartition]:
        marks = Marks(wanted=reads_committed(self._options))
        ats, ids = self._selection.find(cluster, all_of_them=True)
        committed = marks.left_to_brokers(cluster, ats)
        consumer = consumer_of(self._options, committed=committed)
        places = self._tiers.look(consumer, ids, fail=self._reading.fail)
        while True:
            first, end = self._resolved(consumer, places, ats)
            joint = self._jointly(marks, cluster, places, first, end, ids)
            if joint is None or not joint.ahead:
                break
            if not places.go_back(joint.ahead):
                raise ahead_of_others(joint.ahead[0])
        sound = end if joint is None else joint.sound
        whole = {at: end[at] if places.is_upserted(at) else sound[at] for at in ats}
        parts = places.cut([(at, first[at], whole[at]) for at in ats], streaming=False)
        ends = {} if self._ending.everywhere == LATEST else end
        late = {at: (upto, max(upto, places.table_end(at))) for at, upto in ends.items()} if places.has_log else {}
        # A transaction may have ended in partitions that are not read from the log.
        hot = {at: (end[at], end[at]) for at in ats if parts.hot or late}
        hot |= {at: (low, high) for at, low, high in parts.hot}
        begin, upto = {at: low for at, (low, _) in hot.items()}, {at: high for at, (_, high) in hot.items()}
        if joint is not None:
            marked: dict[TopicPartition, MarkedUpTo] | None = joint.marked
            upto = {at: max(begin[at], min(high, sound[at])) for at, high in upto.items()}
        else:
            marked = marks.look(cluster, begin, ids)
            if marked is not None and self._ending.everywhere == LATEST:
                upto = cut(begin, upto, marked)
        named = self._starting.everywhere is None
        kept = Floors(named=first) if named else Floors(whole=first)
        floors = behind_tables(kept, parts.joined, {at: first[at] for at in parts.upserted})
        spans = [(at, begin[at], upto[at]) for at in begin]
        over = {} if joint is None else passed_over(kept, first, sound, joint.marked)
        counted = spans if joint is None else [(at, first[at], upto.get(at, sound[at])) for at in ats]
        newest = [one for one in spans if one[0] in parts.upserted and one[1] < one[2]]
        newer = {one.at: one.from_base() for one in shared(newest, counted, ids, marked, floors, committed=committed)}
        narrowed = self._narrowed(consumer, [one for one in spans if one[0] not in parts.upserted], marked or {})
        return [
            *places.tasks(parts, newer, self._narrowing, kept, ends, over),
            *tasks(self._options, narrowed, ids, marked, floors, committed=committed, unfiltered=counted, ends=late),
        ]

    def _resolved(
        self, consumer: Consumer, places: TieredOffsets, ats: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The start and the end according to the options and the existing records. Raises RecordsLost."""
        there = places.bounds(ats)
        first = self._starting.resolve(places, ats)
        end = self._ending.resolve(places, ats)
        begun = {at: earliest for at, (earliest, _) in there.items() if first[at] == earliest}
        for what in begun_behind(consumer, begun):
            _log.warning("%s", what)
        for at, (earliest, latest) in there.items():
            if not earliest <= first[at] <= latest:
                what = f"{at} has the offsets {earliest} to {latest - 1}, and should be read from {first[at]} on"
                why = log_start(consumer, at, earliest) if first[at] < earliest else ""
                report_lost(what + why, fail=self._reading.fail)
            if end[at] > latest:
                what = f"{at} has the offsets {earliest} to {latest - 1}, and should be read to {end[at] - 1}"
                report_lost(what, fail=self._reading.fail)
            first[at], end[at] = max(first[at], earliest), min(end[at], latest)
        return first, end

    def _jointly(
        self,
        marks: Marks,
        cluster: BrokerCluster,
        places: TieredOffsets,
        first: Ends,
        end: Ends,
        ids: Mapping[str, str],
    ) -> "_Joint | None":
        """The consistent end of a read of several streams, some of them tables.

        None if there are no such transactions, or the ends are given, which are used unchanged.
        """
        if self._ending.everywhere != LATEST or not places.is_joint(first):
            return None
        in_log = marks.look(cluster, places.in_log(first), ids)
        if in_log is None:
            return None
        cold = places.cold(first, {at: upto for at in first if (upto := places.table_end(at))})
        # Tables without enough known transactions are read completely.
        low = {at: max(offset, cold.fixed.get(at, 0)) for at, offset in first.items()}
        sound = cut_jointly(low, end, in_log, cold._replace(fixed={}))
        return _Joint(together(in_log, cold.ended, first, end), sound, cold.ahead(sound))

    def _narrowed(
        self, consumer: Consumer, spans: list[Span], marked: Mapping[TopicPartition, MarkedUpTo]
    ) -> list[Span]:
        """The parts of spans that filters leave; up to their ends if a record may count at a later marker."""
        narrowing = self._narrowing
        taken, spans = [one for one in spans if narrowing.takes(one[0])], []
        for at, first, end in taken:
            low, high = narrowing.cut(first, end)
            spans.append((at, low, end if at in marked and (marked[at].ended or marked[at].open) else high))
        if narrowing.since_ms <= 0:
            return spans
        since = consumer.offsets(dict.fromkeys((at for at, _, _ in spans), narrowing.since_ms))
        return [(at, max(first, since[at]) if since[at] >= 0 else end, end) for at, first, end in spans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one partition; Spark creates one without offsets if there is nothing to read."""
        return self._filing.rows(read_part(self._reading, partition))


class FilteringReader(BatchReader):
    """A reader that gets filters from Spark: it skips records that cannot pass them."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use the filters that help; returns those that Spark must still apply to the records."""
        self._narrowing, unmet = narrow(filters)
        return unmet
