"""Sinks of a pipeline: the rows that each requires, how it writes them, and how its query starts."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from duramen.base.errors import DependencyMissing, DuramenError, OptionInvalid
from duramen.base.units import parse_ms
from duramen.spark.pipelines.batches import HasColumns
from duramen.spark.pipelines.checkpoints import PipelineCheckpoint
from duramen.spark.pipelines.copy import copied_columns, copied_frame, copied_source
from duramen.spark.pipelines.definition.model import PipelineModel, Sink, Text
from duramen.spark.pipelines.definition.problems import Problems, meant
from duramen.spark.pipelines.frames import checked_options, place_of, sink_options, source_options, storage_of
from duramen.spark.pipelines.reasons import placed, plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import DataType

    from duramen.spark.pipelines.batches import SinkTable

__all__ = ["Show", "check", "check_columns", "owner_of", "shaped", "start"]

Show = Callable[[str, int, list[Mapping[str, Any]]], None]
"""Gets a console sink's name, the number of a micro-batch, and the first of its rows."""

_OBVIOUS_MODE: Final = "say mode: update, or give the source a watermark"


def owner_of(pipeline: PipelineModel, sink: Sink) -> str:
    """The owner that a sink records in its table."""
    return f"{pipeline.name.value}/{sink.name.value}"


def shaped(frame: "DataFrame", sink: Sink) -> "DataFrame":
    """The rows in the sink's form: for a stream, keys and values built from columns if the file says so."""
    from pyspark.sql import functions as sf

    if sink.kind != "stream" or not (sink.json or sink.key is not None):
        return frame
    key = [] if sink.key is None else [sf.col(_quoted(sink.key.value)).cast("string").alias("key")]
    if sink.json:
        return frame.select(*key, sf.to_json(sf.struct("*")).alias("value"))
    others = [sf.col(_quoted(name)) for name in frame.columns if name != "key"]
    return frame.select(*key, *others)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# -- before anything starts -------------------------------------------------------------------------


def check(spark: "SparkSession", pipeline: PipelineModel, sink: Sink, frame: "DataFrame", problems: Problems) -> None:
    """Reasons why the sink cannot take these rows become problems."""
    from pyspark.errors import PySparkException

    if not frame.isStreaming:
        problems.add(sink.input.place, f"{sink.input.value} reads no stream: a sink needs rows that come")
        return
    for column in (sink.key, *sink.keys, sink.sequence_by):
        if column is not None and column.value not in frame.columns:
            problems.add(
                column.place, f"{sink.input.value} has no column {column.value}{meant(column.value, frame.columns)}"
            )
            return
    try:
        rows = shaped(frame, sink)
    except PySparkException as error:
        problems.add(sink.input.place, plain(str(error)))
        return
    _check_mode(spark, sink, rows, problems)
    if sink.delete_when is not None:
        try:
            rows.where(sink.delete_when.value)
        except PySparkException as error:
            problems.add(placed(str(error), sink.delete_when), plain(error.getMessage() or str(error)))
    check_columns(pipeline, sink, rows, problems)


def check_columns(pipeline: PipelineModel, sink: Sink, rows: HasColumns, problems: Problems) -> None:
    """Reasons why the sink cannot take rows with these columns become problems; this needs no Spark."""
    if sink.kind == "stream":
        _check_stream(pipeline, sink, rows, problems)
    elif sink.kind != "console":
        _check_table(pipeline, sink, rows, problems)


def _check_mode(spark: "SparkSession", sink: Sink, rows: "DataFrame", problems: Problems) -> None:
    """Spark's errors about operators and output mode at the start of a query, raised earlier."""
    from pyspark.errors import PySparkException

    jvm: Any = spark._jvm
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, sink.output_mode.capitalize())()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), mode)
    except PySparkException as error:
        said = plain(str(error))
        hint = f"; {_OBVIOUS_MODE}" if sink.mode is None and "without watermark" in said else ""
        problems.add((sink.mode or sink.name).place, said.rstrip(".;") + hint)


def _check_stream(pipeline: PipelineModel, sink: Sink, rows: HasColumns, problems: Problems) -> None:
    from duramen.spark.datasource import DuramenDataSource

    if checked_options(pipeline, sink, problems) is None:
        return
    try:
        DuramenDataSource(sink_options(pipeline, sink)).streamWriter(rows.schema, overwrite=False)
    except OptionInvalid as error:
        said = str(error)
        hint = "; json: true makes the value of all columns" if said.startswith("a column `value`") else ""
        problems.add(place_of(sink.options, sink.input, said), said + hint)


def _check_table(pipeline: PipelineModel, sink: Sink, rows: HasColumns, problems: Problems) -> None:
    from pyspark.sql.types import NullType

    from duramen.spark.pipelines.batches import columns_after
    from duramen.spark.pipelines.schema_evolution import lacking
    from duramen.spark.tables.storage import storage_errors

    seen: set[str] = set()
    for field in rows.schema.fields:
        if isinstance(field.dataType, NullType):
            problems.add(sink.input.place, f"the column {field.name} is NULL and has no type; CAST gives it one")
            return
        if field.name.lower() in seen:
            problems.add(sink.input.place, f"{sink.input.value} has the column {field.name} twice; AS renames one")
            return
        seen.add(field.name.lower())
    try:
        table = _table(pipeline, sink)
        schema = table.columns(rows)
        state = table.find()
        if state is None:
            with storage_errors(table.place.uri):
                table.place.require_parent()
            table.require_types(schema)
        else:
            columns_after(table, state, schema)
            for name in lacking(state.schema, schema):
                problems.warn(
                    sink.input.place,
                    f"{sink.input.value} has no column {name}, which is null in its new rows of the table",
                )
    except DuramenError as error:
        problems.add(place_of(sink.options, sink.location, str(error)), str(error))


# -- running ----------------------------------------------------------------------------------------


def start(
    pipeline: PipelineModel, sink: Sink, frame: "DataFrame", checkpoint: PipelineCheckpoint, show: Show, *, once: bool
) -> "StreamingQuery":
    """Start the sink's query. Raises Spark's errors."""
    source = copied_source(pipeline, sink)
    if source is None:
        rows = shaped(frame, sink)
    else:
        reader = frame.sparkSession.readStream.format("duramen").options(**source_options(pipeline, source))
        rows = copied_frame(reader, storage_of(pipeline, sink))
    writer = (
        rows.writeStream.queryName(sink.name.value)
        .outputMode(sink.output_mode)
        .option("checkpointLocation", str(checkpoint.directory))
    )
    trigger = sink.trigger or pipeline.trigger
    if once:
        writer = writer.trigger(availableNow=True)
    elif trigger is not None:
        writer = writer.trigger(processingTime=f"{parse_ms(trigger.value)} milliseconds")
    return _to(pipeline, sink, writer, checkpoint, show).start()


def _to(
    pipeline: PipelineModel, sink: Sink, writer: "DataStreamWriter", checkpoint: PipelineCheckpoint, show: Show
) -> "DataStreamWriter":
    if sink.kind == "stream":
        return writer.format("duramen").options(**sink_options(pipeline, sink))
    if sink.kind == "console":
        return writer.foreachBatch(_showing(sink, show))
    from duramen.spark.pipelines.batches import TableBatchWriter

    return writer.foreachBatch(TableBatchWriter(_table(pipeline, sink), checkpoint))


def _table(pipeline: PipelineModel, sink: Sink) -> "SinkTable[Any]":
    """The table of a sink, which may not exist yet. Raises TableUnsupported, DependencyMissing."""
    storage, owner = storage_of(pipeline, sink), owner_of(pipeline, sink)
    source = copied_source(pipeline, sink)
    try:
        if sink.kind == "iceberg":
            from duramen.spark.pipelines.iceberg import IcebergSink

            return IcebergSink(storage, owner)
        from duramen.spark.pipelines.delta import DeltaCopySink, DeltaSink
        from duramen.spark.pipelines.merge import Upsert
    except ImportError as error:
        raise DependencyMissing(f"tables need {error.name}: pip install 'duramen[tables]'") from None
    if source is not None:
        return DeltaCopySink(storage, owner, copied_columns(source_options(pipeline, source)))
    upsert = Upsert([key.value for key in sink.keys], _value(sink.sequence_by), _value(sink.delete_when))
    return DeltaSink(storage, owner, upsert if sink.keys else None)


def _value(text: Text | None) -> str | None:
    return None if text is None else text.value


def _showing(sink: Sink, show: Show) -> Callable[["DataFrame", int], None]:
    def on_batch(batch: "DataFrame", batch_id: int) -> None:
        rows = _in_words(batch.limit(sink.rows)).collect()
        found: list[Mapping[str, Any]] = [
            dict(zip(batch.columns, row.asDict(recursive=True).values(), strict=True)) for row in rows
        ]
        show(sink.name.value, batch_id, found)

    return on_batch


def _in_words(rows: "DataFrame") -> "DataFrame":
    """The same rows with dates and times as text: Python's types cannot hold all of Spark's values."""
    from pyspark.sql import functions as sf

    plain = [f"c{place}" for place in range(len(rows.columns))]
    kinds = [_worded(field.dataType) for field in rows.schema.fields]
    return rows.toDF(*plain).select(
        [sf.col(name).cast(kind).alias(name) for name, kind in zip(plain, kinds, strict=True)]
    )


def _worded(kind: "DataType") -> "DataType":
    """The type with text in place of dates and times, nested ones too."""
    from pyspark.sql.types import (
        ArrayType,
        DateType,
        MapType,
        StringType,
        StructField,
        StructType,
        TimestampNTZType,
        TimestampType,
    )

    if isinstance(kind, DateType | TimestampType | TimestampNTZType):
        return StringType()
    if isinstance(kind, StructType):
        return StructType([StructField(one.name, _worded(one.dataType), one.nullable) for one in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_worded(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(_worded(kind.keyType), _worded(kind.valueType), kind.valueContainsNull)
    return kind
