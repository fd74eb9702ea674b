"""Reading a stream of micro-batches: `spark.readStream.format("duramen")`.

The reader lives on the driver as long as the query; executors get pickled copies of it. Offsets are those of Spark's
checkpoint: no other state survives a restart.
"""

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from duramen.base.errors import DuramenError, TableAhead
from duramen.client import Consumer, TopicPartition
from duramen.client.cluster import RetryPatience
from duramen.client.consumer import EARLIEST, LATEST
from duramen.client.transaction_states import MarkedUpTo
from duramen.spark.api import HAS_LIMITS, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from duramen.spark.options import Options
from duramen.spark.plainly import without_traceback
from duramen.spark.read.cold_files import read_part
from duramen.spark.read.filters import EVERYTHING
from duramen.spark.read.joint_boundaries import ahead_of_others, cut_jointly, together
from duramen.spark.read.limits import BatchLimits
from duramen.spark.read.losses import begun_behind, cut_off, made_anew, moment
from duramen.spark.read.markers import Marks
from duramen.spark.read.offset_ranges import TieredOffsets, Tiers
from duramen.spark.read.offsets import SourceOffsets, listed
from duramen.spark.read.parquet_files import Filing
from duramen.spark.read.plan import limited
from duramen.spark.read.prefetch import HandingOver, Prefetching
from duramen.spark.read.reader import (
    PartitionReader,
    SpanPartition,
    cluster_of,
    commit_to_group,
    consumer_of,
    reads_committed,
    report_lost,
    tasks,
)
from duramen.spark.read.selection import Selection, starting
from duramen.spark.read.splits import Floors, behind_tables, floors_left, passed_over, reached

__all__ = ["RefusedStreamReader", "StreamReader"]

_log = logging.getLogger("duramen.spark")

_Document = dict[str, Any]
_Places = Mapping[TopicPartition, int]
_T = TypeVar("_T")
_NO_OFFSETS: Final = SourceOffsets({}, {})


class StreamReader(HandingOver, SupportsTriggerAvailableNow):
    """Plans micro-batches and reads their parts."""

    def __init__(self, options: Options) -> None:
        """Raises OptionInvalid."""
        self._options = options
        self._selection = Selection(options)
        self._starting = starting(options, streaming=True)
        self._reading = PartitionReader(options)
        self._filing = Filing(options)
        most = options.number("maxRecordsPerPartition")
        alone = options.given("minPartitions") or self._filing.is_asked
        self._ahead = None if alone else Prefetching(self._reading, most)
        self._tiers = Tiers(options, log_only=not HAS_LIMITS)
        self._marks = Marks(wanted=reads_committed(options), alone=not HAS_LIMITS)
        self._limits = BatchLimits(options)
        self._target: SourceOffsets | None = None  # with the trigger AvailableNow: the end of the query
        self._latest = _NO_OFFSETS
        self._begun_ms = _now_ms()
        self._seen_ms: dict[str, int] = {}  # when each stream last existed

    # -- offsets ------------------------------------------------------------------------------------

    @without_traceback()
    def initialOffset(self) -> _Document:
        """The start of a new query. Raises StreamNotFound, ServerUnreachable, OptionInvalid."""
        consumer, ats, ids = self._find(all_of_them=True)
        places = self._tiers.look(consumer, ids, fail=self._reading.fail)
        begin = self._starting.resolve(places, ats)
        if self._starting.everywhere != LATEST:
            for what in begun_behind(consumer, begin):
                _log.warning("%s", what)
        marked = self._marks.look(consumer.cluster, places.in_log(begin), ids)
        if marked is None:
            return SourceOffsets(begin, ids).to_json()
        if self._starting.everywhere is None:
            floors = Floors(named=begin)
        else:
            # A transaction that ended in one partition before `begin` started in every other one below its present end.
            latest = self._starting.everywhere == LATEST
            floors = Floors(whole={at: marked[at].high_watermark for at in ats} if latest else begin)
        return SourceOffsets(begin, ids, _floors_behind(places, floors, begin, begin, marked)).to_json()

    def _find(self, *, all_of_them: bool) -> tuple[Consumer, list[TopicPartition], dict[str, str]]:
        """The partitions of the read, and a consumer that sees their committed records."""
        cluster = cluster_of(self._options)
        ats, ids = self._selection.find(cluster, all_of_them=all_of_them)
        return consumer_of(self._options, committed=self._marks.left_to_brokers(cluster, ats)), ats, ids

    def _now(self) -> SourceOffsets:
        consumer, ats, ids = self._find(all_of_them=False)
        self._seen_ms |= dict.fromkeys(ids, _now_ms())
        places = self._tiers.look(consumer, ids, fail=self._reading.fail)
        return SourceOffsets(places.offsets(dict.fromkeys(ats, LATEST)), ids)

    @without_traceback()
    def prepareForTriggerAvailableNow(self) -> None:
        """Note the present ends of the partitions: the query ends there, without partitions added later."""
        self._target = self._now()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limits of `maxOffsetsPerTrigger` and `minOffsetsPerTrigger`."""
        return self._limits.default

    @without_traceback()
    def latestOffset(self, start: _Document | None = None, limit: ReadLimit | None = None) -> _Document:
        """The end of the next micro-batch. Raises RecordsLost, ServerUnreachable, TableAhead.

        PySpark before 4.2 does not pass the start, and gets the end of all records.
        """
        if start is None or limit is None:
            self._latest = self._now()
            return self._latest.to_json()
        patience = RetryPatience(cluster_of(self._options).timeout_s)
        while True:
            try:
                return self._next(start, limit)
            except TableAhead as error:
                patience.pause(error)
                self._target = self._now()

    def _next(self, start: _Document, limit: ReadLimit) -> _Document:
        before = self._selection.own(start)
        end = self._latest = self._now() if self._target is None else self._target
        self._report_gone(before, end)
        begin = self._begin(before, end)
        if not self._tiers.has_log:
            # A lagging table has no loss: it catches up with the query.
            end = end._replace(at={at: max(offset, begin[at]) for at, offset in end.at.items()})
        there = sum(max(0, end.at[at] - begin[at]) for at in end.at)
        if self._target is None and self._limits.waits(there, limit):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        floors = before.floors
        marked = None
        places = self._places(end)
        if any(offset > begin[at] for at, offset in end.at.items()):
            marked = self._marks.look(cluster_of(self._options), places.in_log(begin), end.ids)
        upto, cold, taken_back = self._upto(places, begin, end.at, marked, most)
        if marked is not None and upto != before.at:
            floors = _floors_behind(places, _floors(before, end, begin), cold, upto, marked)
        if self._target is not None:
            # A table's ends may be after the target, and an earlier state of a table ends before it.
            self._target = self._target._replace(
                at={
                    at: upto[at] if at.topic in taken_back else max(offset, upto[at])
                    for at, offset in self._target.at.items()
                }
            )
        return SourceOffsets(upto, end.ids, floors).to_json()

    def _upto(
        self,
        places: TieredOffsets,
        begin: _Places,
        end: _Places,
        marked: Mapping[TopicPartition, MarkedUpTo] | None,
        most: int | None,
    ) -> tuple[dict[TopicPartition, int], _Places, Collection[str]]:
        """The end of a micro-batch, the ends of its tables, and the tables in an earlier state.

        Raises TableAhead if nothing more can be read with the trigger AvailableNow, although there is something.
        """
        taken_back: set[str] = set()
        while True:
            cold = places.cold_ends(begin, end, most)
            if marked is None:
                return _limited(begin, end, most) | cold, cold, taken_back
            # In its earlier state, a table has nothing after its end.
            end = {at: cold[at] if at.topic in taken_back else offset for at, offset in end.items()}
            tables = places.cold(begin, cold)
            upto = cut_jointly(begin, end, marked, tables, most)
            goes_on = any(upto[at] > offset for at, offset in begin.items())
            ahead = [] if goes_on else tables.ahead(upto)
            if ahead and places.go_back(ahead):
                taken_back.update(ahead)
            elif ahead and self._target is not None:
                raise ahead_of_others(ahead[0])
            else:
                return upto, cold, taken_back

    def _report_gone(self, before: SourceOffsets, end: SourceOffsets) -> None:
        """Report partitions of the query that no longer exist, and since when."""
        again = _created_again(before, end)
        gone = [at for at in before.at if at not in end.at and at.topic not in again]
        dropped = [at for at in gone if not self._selection.names(at.topic)]
        if dropped:
            report_lost(f"{listed(dropped)} is not among what the options name any more", fail=self._reading.fail)
        deleted = [at for at in gone if at not in dropped]
        if deleted:
            seen_ms = self._seen_ms.get(deleted[0].topic)
            when = (
                f"before this query began at {moment(self._begun_ms)}"
                if seen_ms is None
                else f"after {moment(seen_ms)}, when it was there"
            )
            report_lost(f"{listed(deleted)} is not there any more: deleted {when}", fail=self._reading.fail)

    def _begin(self, before: SourceOffsets, end: SourceOffsets) -> dict[TopicPartition, int]:
        """The start of each partition of `end`, after `before`."""
        again = _created_again(before, end)
        for name in sorted(again):
            what = f"{made_anew(consumer_of(self._options), name)}: what was not read of it by then is gone"
            report_lost(what, fail=self._reading.fail)
        new = [at for at in end.at if at not in before.at or at.topic in again]
        begin = {at: before.at[at] for at in end.at if at in before.at}
        begin |= self._places(end).offsets(dict.fromkeys(new, EARLIEST)) if new else {}
        for at in new:
            if begin[at] > 0 and at.topic not in again:
                what = cut_off(consumer_of(self._options), at, 0, begin[at])
                report_lost(f"{at.topic} has a new partition; {what}", fail=self._reading.fail)
        for at, offset in end.at.items():
            if offset < begin[at] and self._tiers.has_log:
                what = (
                    f"{at} ends at {offset}, and was read up to {begin[at]}: records are lost, or it was created again"
                )
                report_lost(what, fail=self._reading.fail)
        return begin

    def reportLatestOffset(self) -> _Document | None:
        """The ends of the partitions at the last lookup, for the query's progress."""
        return self._latest.to_json() if self._latest.at else None

    # -- reading ------------------------------------------------------------------------------------

    @without_traceback()
    def partitions(self, start: _Document, end: _Document) -> list[InputPartition]:
        """A range of offsets for each task. Raises RecordsLost, ServerUnreachable."""
        before, after = self._selection.own(start), self._selection.own(end)
        if not HAS_LIMITS:
            self._report_gone(before, after)
            self._begin(before, after)
        same = _same(before, after)
        new = [at for at in after.at if at not in same]
        places = self._places(after)
        first = places.offsets(dict.fromkeys(new, EARLIEST)) if new else {}
        first |= {at: before.at[at] for at in same}
        places.be_at(first, after.at)
        spans = [(at, first[at], after.at[at]) for at in sorted(after.at)]
        parts = places.cut(spans, streaming=True)
        cluster = cluster_of(self._options)
        committed = self._marks.left_to_brokers(cluster, after.at)
        floors = _floors(before, after, first)
        joint = bool(parts.cold and floors.whole) and places.is_joint(after.at)
        low = places.in_log(first) if joint else {at: low for at, low, _ in parts.hot}
        marked = self._marks.look(cluster, low, after.ids, after.at)
        over: Mapping[TopicPartition, Collection[int]] = {}
        if joint and marked is not None:
            marked = together(marked, places.ended(first), first, after.at)
            over = passed_over(floors, first, after.at, marked)
        reach = {} if marked is None else reached(parts.hot, marked, floors)
        if reach:
            parts = places.cut(spans, streaming=True, reach=reach)
        behind = behind_tables(floors, parts.joined, {})
        whole = spans if joint else None
        log = tasks(self._options, parts.hot, after.ids, marked, behind, committed=committed, unfiltered=whole)
        cold = places.tasks(parts, {}, EVERYTHING, floors, over=over)
        looked = [span for one in log for span in one.spans]
        self._handed = None if cold or self._ahead is None else self._ahead.read(looked)
        return [*cold, *log] if self._handed is None else [SpanPartition(*looked)]

    def _places(self, offsets: SourceOffsets) -> TieredOffsets:
        return self._tiers.look(consumer_of(self._options), offsets.ids, fail=self._reading.fail)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one partition."""
        return self._filing.rows(read_part(self._reading, partition))

    def commit(self, end: _Document) -> None:
        """Everything up to `end` is processed: commit it to the consumer group `kafka.group.id`, if it is set.

        Only Kafka's tools read it, so a failure is logged and does not stop the query.
        """
        commit_to_group(self._options, SourceOffsets.from_json(end).at)

    def stop(self) -> None:
        """The query has ended."""
        consumer_of(self._options).cluster.close()


def _limited(begin: _Places, end: _Places, most: int | None) -> dict[TopicPartition, int]:
    return dict(end) if most is None else limited(begin, end, most)


def _of(values: Mapping[TopicPartition, _T], ats: Iterable[TopicPartition]) -> dict[TopicPartition, _T]:
    return {at: values[at] for at in ats}


def _now_ms() -> int:
    return int(time.time() * 1000)


def _created_again(before: SourceOffsets, after: SourceOffsets) -> set[str]:
    """The streams that were deleted and created again with the same name."""
    return {name for name, id_ in after.ids.items() if before.ids.get(name) and id_ and before.ids[name] != id_}


def _same(before: SourceOffsets, after: SourceOffsets) -> set[TopicPartition]:
    """The partitions that continue: those of streams that were not created again."""
    return {
        at for at in after.at
        if at in before.at and not (before.ids[at.topic] and before.ids[at.topic] != after.ids[at.topic])
    }  # fmt: skip


def _floors(before: SourceOffsets, after: SourceOffsets, begin: Mapping[TopicPartition, int]) -> Floors:
    """The floors of continuing partitions; new ones show only whole transactions."""
    same = _same(before, after)
    named, whole = ({at: floor for at, floor in one.items() if at in same} for one in before.floors)
    return Floors(named, {at: begin[at] for at in after.at if at not in same} | whole)


def _floors_behind(
    places: TieredOffsets, floors: Floors, cold: _Places, upto: _Places, marked: Mapping[TopicPartition, MarkedUpTo]
) -> Floors:
    """The floors that matter after a micro-batch with parts from tables."""
    tables = {at: floor for at, floor in places.floors(cold).items() if upto[at] >= floor}
    behind = behind_tables(floors, tables, {})
    left = floors_left(behind, upto, marked)
    # Markers that the log no longer has are unknown.
    gone = {at for at, offset in places.in_log(_of(upto, cold)).items() if offset > upto[at]}
    named, whole = ({at: floor for at, floor in one.items() if at in gone} for one in behind)
    return Floors({**left.named, **named}, {**left.whole, **whole})


class RefusedStreamReader(DataSourceStreamReader):
    """Raises the error at the first opportunity."""

    def __init__(self, error: DuramenError) -> None:
        self._error = error

    @without_traceback()
    def getDefaultReadLimit(self) -> ReadLimit:
        """Raises the error."""
        raise self._error

    @without_traceback()
    def initialOffset(self) -> _Document:
        """Raises the error."""
        raise self._error

    @without_traceback()
    def latestOffset(self, start: _Document | None = None, limit: ReadLimit | None = None) -> _Document:
        """Raises the error."""
        del start, limit
        raise self._error

    @without_traceback()
    def partitions(self, start: _Document, end: _Document) -> list[InputPartition]:
        """Raises the error."""
        del start, end
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Never reached."""
        del partition
        raise self._error
