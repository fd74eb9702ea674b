"""Reading a stream of micro-batches: `spark.readStream.format("duramen")`.

The reader lives on the driver as long as the query does; what goes to the executors are pickled copies of it.
Offsets are those of Spark's checkpoint: nothing else is remembered across a restart.
"""

import logging
import time
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from duramen.base.errors import DuramenError, OptionInvalid
from duramen.base.units import parse_ms
from duramen.client import TopicPartition
from duramen.client.consumer import EARLIEST, LATEST
from duramen.spark.cold import read_part
from duramen.spark.offsets import Offsets, listed
from duramen.spark.options import Options
from duramen.spark.places import Places, Tiers
from duramen.spark.plainly import said_plainly
from duramen.spark.planning import limited, split
from duramen.spark.reading import Reading, Span, SpanPartition, consumer_of, report_lost
from duramen.spark.selection import Selection, starting

__all__ = ["RefusedStreamReader", "StreamReader"]

_log = logging.getLogger("duramen.spark")

_Document = dict[str, Any]
_NO_OFFSETS: Final = Offsets({}, {})


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches and reads their parts."""

    def __init__(self, options: Options) -> None:
        """Raises OptionInvalid."""
        self._options = options
        self._selection = Selection(options)
        self._starting = starting(options, streaming=True)
        self._reading = Reading(options)
        self._tiers = Tiers(options)
        self._most = options.number("maxOffsetsPerTrigger")
        self._least = options.number("minOffsetsPerTrigger")
        if self._most is not None and self._least is not None and self._least > self._most:
            raise OptionInvalid("minOffsetsPerTrigger is larger than maxOffsetsPerTrigger")
        try:
            self._patience_s = parse_ms(options.text("maxTriggerDelay")) / 1000
        except ValueError as error:
            raise OptionInvalid(f"maxTriggerDelay: {options.text('maxTriggerDelay')!r} does not fit: {error}") from None
        self._triggered_s: float | None = None
        self._target: Offsets | None = None  # with the trigger AvailableNow: where to stop
        self._latest = _NO_OFFSETS

    # -- offsets ------------------------------------------------------------------------------------

    @said_plainly()
    def initialOffset(self) -> _Document:
        """Where a new query begins. Raises StreamNotFound, ServerUnreachable, OptionInvalid."""
        consumer = consumer_of(self._options)
        ats, ids = self._selection.find(consumer.cluster, all_of_them=True)
        places = self._tiers.look(consumer, ids, fail=self._reading.fail)
        return Offsets(self._starting.resolve(places, ats), ids).to_json()

    def _now(self) -> Offsets:
        consumer = consumer_of(self._options)
        ats, ids = self._selection.find(consumer.cluster, all_of_them=False)
        places = self._tiers.look(consumer, ids, fail=self._reading.fail)
        return Offsets(places.offsets(dict.fromkeys(ats, LATEST)), ids)

    @said_plainly()
    def prepareForTriggerAvailableNow(self) -> None:
        """Note where the partitions end now: nothing beyond is read, and no partition made later."""
        self._target = self._now()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What `maxOffsetsPerTrigger` and `minOffsetsPerTrigger` say."""
        if self._most is not None:
            return ReadMaxRows(self._most)
        return ReadMinRows(self._least) if self._least is not None else ReadAllAvailable()

    @said_plainly()
    def latestOffset(self, start: _Document, limit: ReadLimit) -> _Document:
        """Where the next micro-batch ends. Raises RecordsLost, ServerUnreachable."""
        before = Offsets.from_json(start)
        end = self._latest = self._now() if self._target is None else self._target
        begin = self._begin(before, end)
        if self._waits(begin, end, limit):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        at = end.at if most is None else limited(begin, end.at, most)
        return Offsets(at, end.ids).to_json()

    def _begin(self, before: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        """From where each partition of `end` is to be read, after `before`."""
        again = {name for name, id_ in end.ids.items() if before.ids.get(name) and id_ and before.ids[name] != id_}
        for name in sorted(again):
            what = f"stream {name} was deleted and created again: what was not read of it by then is gone"
            report_lost(what, fail=self._reading.fail)
        gone = [at for at in before.at if at not in end.at]
        if gone:
            report_lost(f"{listed(gone)} is not there any more", fail=self._reading.fail)
        new = [at for at in end.at if at not in before.at or at.topic in again]
        begin = {at: before.at[at] for at in end.at if at in before.at}
        begin |= self._places(end).offsets(dict.fromkeys(new, EARLIEST)) if new else {}
        for at in new:
            if begin[at] > 0 and at.topic not in again:
                what = f"{at} is new, and its records before {begin[at]} are gone already (retention)"
                report_lost(what, fail=self._reading.fail)
        for at, offset in end.at.items():
            if offset < begin[at]:
                what = f"{at} ends at {offset}, and was read up to {begin[at]}: records were lost, or it was made anew"
                report_lost(what, fail=self._reading.fail)
        return begin

    def _waits(self, begin: dict[TopicPartition, int], end: Offsets, limit: ReadLimit) -> bool:
        """Whether there is too little yet for a micro-batch."""
        if self._least is None or self._target is not None or not isinstance(limit, ReadMaxRows | ReadMinRows):
            return False
        now_s = time.monotonic()
        if self._triggered_s is None:
            self._triggered_s = now_s
        there = sum(max(0, end.at[at] - begin[at]) for at in end.at)
        if there < self._least and now_s - self._triggered_s < self._patience_s:
            return True
        self._triggered_s = now_s
        return False

    def reportLatestOffset(self) -> _Document | None:
        """Where the partitions ended when it was last looked, for the query's progress."""
        return self._latest.to_json() if self._latest.at else None

    # -- reading ------------------------------------------------------------------------------------

    @said_plainly()
    def partitions(self, start: _Document, end: _Document) -> list[InputPartition]:
        """A range of offsets for each task. Raises RecordsLost, ServerUnreachable."""
        before, after = Offsets.from_json(start), Offsets.from_json(end)
        same = {
            at for at in after.at
            if at in before.at and not (before.ids[at.topic] and before.ids[at.topic] != after.ids[at.topic])
        }  # fmt: skip
        new = [at for at in after.at if at not in same]
        places = self._places(after)
        first = places.offsets(dict.fromkeys(new, EARLIEST)) if new else {}
        first |= {at: before.at[at] for at in same}
        hot, tasks = places.cut([(at, first[at], after.at[at]) for at in sorted(after.at)], streaming=True)
        spans = split(
            hot,
            self._options.number("minPartitions"),
            self._options.number("maxRecordsPerPartition"),
        )
        return [*tasks, *(SpanPartition(Span(at, after.ids[at.topic], low, high)) for at, low, high in spans)]

    def _places(self, offsets: Offsets) -> Places:
        return self._tiers.look(consumer_of(self._options), offsets.ids, fail=self._reading.fail)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one share."""
        return read_part(self._reading, partition)

    def commit(self, end: _Document) -> None:
        """Everything up to `end` is processed: tell the consumer group `kafka.group.id`, if one was named.

        Only Kafka's tools look at that, so a failure is logged and does not stop the query.
        """
        group = self._options.text("kafka.group.id")
        if not group:
            return
        try:
            consumer_of(self._options).commit(group, Offsets.from_json(end).at)
        except DuramenError as error:
            _log.warning("group %s: the offsets could not be committed: %s", group, error)

    def stop(self) -> None:
        """The query has ended."""
        consumer_of(self._options).cluster.close()


class RefusedStreamReader(DataSourceStreamReader):
    """Says at the first opportunity why there is no reader."""

    def __init__(self, error: DuramenError) -> None:
        self._error = error

    @said_plainly()
    def getDefaultReadLimit(self) -> ReadLimit:
        """Raises the error."""
        raise self._error

    @said_plainly()
    def initialOffset(self) -> _Document:
        """Raises the error."""
        raise self._error

    @said_plainly()
    def latestOffset(self, start: _Document, limit: ReadLimit) -> _Document:
        """Raises the error."""
        del start, limit
        raise self._error

    @said_plainly()
    def partitions(self, start: _Document, end: _Document) -> list[InputPartition]:
        """Raises the error."""
        del start, end
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Never reached."""
        del partition
        raise self._error
