"""`format("duramen")`: the class that Spark finds, and reading as a batch. Streams are in `streaming`."""

from collections.abc import Iterator, MutableMapping
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from duramen.base.errors import DuramenError, OptionInvalid
from duramen.spark.cold import read_part
from duramen.spark.columns import COLUMNS, HEADERS_COLUMN, arrow_schema
from duramen.spark.options import Options
from duramen.spark.places import Tiers
from duramen.spark.plainly import said_plainly
from duramen.spark.planning import split
from duramen.spark.reading import Reading, Span, SpanPartition, consumer_of, report_lost
from duramen.spark.selection import Selection, ending, starting
from duramen.spark.sink import BatchWriter, StreamWriter
from duramen.spark.streaming import RefusedStreamReader, StreamReader

__all__ = ["BatchReader", "DuramenDataSource"]

_NAME: Final = "duramen"


class DuramenDataSource(DataSource):
    """Streams of Duramen, and of any broker that speaks Kafka's protocol, with the columns of Spark's Kafka source."""

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return _NAME

    @said_plainly()
    def schema(self) -> str:
        """The columns; options are checked here as far as that goes without knowing what the query will be."""
        options = Options(self.options, "source")
        Selection(options)
        return f"{COLUMNS}, {HEADERS_COLUMN}" if options.flag("includeHeaders") else COLUMNS

    @said_plainly()
    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`. Raises OptionInvalid."""
        options = Options(self.options, "batch")
        _require_own(schema, options)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`. What does not fit is said by the reader: PySpark would hide an error raised here."""
        try:
            options = Options(self.options, "stream")
            _require_own(schema, options)
            return StreamReader(options)
        except DuramenError as error:
            return RefusedStreamReader(error)

    @said_plainly()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """For `df.write`. Raises OptionInvalid."""
        if overwrite:
            raise OptionInvalid('mode("overwrite") is not possible: a stream is only added to; say mode("append")')
        return BatchWriter(Options(self.options, "sink"), schema)

    @said_plainly()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """For `df.writeStream`; `overwrite` (output mode complete) adds each result to the stream, as in Kafka's sink.

        Raises OptionInvalid.
        """
        del overwrite
        return StreamWriter(Options(self.options, "sink"), schema)


def _require_own(schema: StructType, options: Options) -> None:
    if not to_arrow_schema(schema, timezone="UTC").equals(arrow_schema(headers=options.flag("includeHeaders"))):
        raise OptionInvalid("the format duramen has its own schema: leave out schema(…)")


class BatchReader(DataSourceReader):
    """Reads what there is when the query is planned."""

    def __init__(self, options: Options) -> None:
        """Raises OptionInvalid."""
        self._options = options
        self._selection = Selection(options)
        self._starting = starting(options, streaming=False)
        self._ending = ending(options)
        self._reading = Reading(options)
        self._tiers = Tiers(options)

    @said_plainly()
    def partitions(self) -> list[InputPartition]:
        """A range of offsets for each task. Raises what reaching the brokers raises, RecordsLost, StreamNotFound."""
        consumer = consumer_of(self._options)
        ats, ids = self._selection.find(consumer.cluster, all_of_them=True)
        places = self._tiers.look(consumer, ids, fail=self._reading.fail)
        there = places.bounds(ats)
        first = self._starting.resolve(places, ats)
        end = self._ending.resolve(places, ats)
        for at, (earliest, latest) in there.items():
            if not earliest <= first[at] <= latest:
                what = f"{at} has the offsets {earliest} to {latest - 1}, and should be read from {first[at]} on"
                report_lost(what, fail=self._reading.fail)
            if end[at] > latest:
                what = f"{at} has the offsets {earliest} to {latest - 1}, and should be read to {end[at] - 1}"
                report_lost(what, fail=self._reading.fail)
            first[at], end[at] = max(first[at], earliest), min(end[at], latest)
        hot, tasks = places.cut([(at, first[at], end[at]) for at in ats], streaming=False)
        spans = split(
            hot,
            self._options.number("minPartitions"),
            self._options.number("maxRecordsPerPartition"),
        )
        return [*tasks, *(SpanPartition(Span(at, ids[at.topic], low, high)) for at, low, high in spans)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one share; Spark makes one without any where there is nothing to read."""
        return read_part(self._reading, partition)
