"""The DataFrames of a pipeline, source by source and step by step; errors become problems with their places.

Spark checks names and types when each frame is created, before any record is read.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from duramen.base.errors import (
    DependencyMissing,
    DuramenError,
    OptionInvalid,
    SettingInvalid,
    TableForeign,
    TableUnsupported,
)
from duramen.client.cluster import parse_servers
from duramen.spark.options import Options, Use
from duramen.spark.pipelines.copy import copied_columns
from duramen.spark.pipelines.definition.graph import inputs_of, is_name
from duramen.spark.pipelines.definition.model import (
    STORED_FORMATS,
    PipelineModel,
    PipelineSource,
    Sink,
    SinkOption,
    Step,
    Text,
    Watermark,
)
from duramen.spark.pipelines.definition.problems import Problems, SourcePlace
from duramen.spark.pipelines.reasons import placed, plain
from duramen.spark.tables.port import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "Frames", "Streams", "build", "check_source", "checked_options", "columns_read", "place_of", "sink_options",
    "source_options", "storage_of",
]  # fmt: skip

_SERVERS: Final = "kafka.bootstrap.servers"
_MALFORMED: Final = "malformed"
_TEXT: Final = "__malformed"
_RECORD: Final = "record"
_RECORD_FIELDS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

Frames = dict[str, "DataFrame"]
Streams = Literal["read", "stream", "batch"]


def storage_of(pipeline: PipelineModel, part: PipelineSource | Sink) -> Storage:
    """The location of a table: a relative path starts at the directory of the pipeline's file."""
    location = part.location.value
    path = location if "://" in location else str(Path(pipeline.directory, location))
    return Storage(path, {option.name.value: option.value.value for option in part.options})


def source_options(pipeline: PipelineModel, source: PipelineSource) -> dict[str, str]:
    """The options of `format("duramen")` for a stream."""
    return _with_servers(pipeline, source.options) | {"subscribe": source.location.value}


def sink_options(pipeline: PipelineModel, sink: Sink) -> dict[str, str]:
    """The options of `format("duramen")` for a sink."""
    return _with_servers(pipeline, sink.options) | {"topic": sink.location.value}


def _with_servers(pipeline: PipelineModel, options: Sequence[SinkOption]) -> dict[str, str]:
    servers = {} if pipeline.brokers is None else {_SERVERS: pipeline.brokers.value}
    return servers | {option.name.value: option.value.value for option in options}


def checked_options(pipeline: PipelineModel, part: PipelineSource | Sink, problems: Problems) -> Options | None:
    """The options of a stream that is read or written; None if one is invalid, which `problems` then reports."""
    use: Use = "stream" if isinstance(part, PipelineSource) else "sink"
    given = source_options(pipeline, part) if isinstance(part, PipelineSource) else sink_options(pipeline, part)
    own = [option for option in part.options if option.name.value.lower() == _SERVERS]
    if pipeline.brokers is None and not own:
        missing = "brokers of the pipeline is missing: the HOST:PORT of a broker's Kafka address"
        if not pipeline.may_have_brokers:
            problems.add(part.location.place, missing)
        return None
    try:
        options = Options(given, use)
    except OptionInvalid as error:
        problems.add(place_of(part.options, part.location, str(error)), str(error))
        return None
    try:
        parse_servers(options.text(_SERVERS))
    except SettingInvalid as error:
        said = own[-1].value if own else pipeline.brokers or part.location
        problems.add(said.place, str(error))
        return None
    return options


def build(
    spark: "SparkSession", pipeline: PipelineModel, order: Sequence[Step], problems: Problems, streams: Streams = "read"
) -> Frames:
    """The frame of each source and step, by its name in lower case; failed ones are left out.

    `streams` are read, or have no rows: as a `stream` for Spark's checks, which then start no Python worker, or as a
    `batch`, for which Spark shows its plan of one micro-batch.
    """
    builder = _Builder(spark, pipeline, problems, streams)
    for source in pipeline.sources:
        builder.add(source.name, lambda source=source: builder.source(source))  # type: ignore[misc]
    for step in order:
        builder.add(step.name, lambda step=step: builder.step(step))  # type: ignore[misc]
    return builder.frames


class _Builder:
    def __init__(self, spark: "SparkSession", pipeline: PipelineModel, problems: Problems, streams: Streams) -> None:
        self.frames: Frames = {}
        self._spark = spark
        self._pipeline = pipeline
        self._problems = problems
        self._streams = streams

    def add(self, name: Text, make: Callable[[], "DataFrame | None"]) -> None:
        """Make a frame, and register it for SQL under its name."""
        frame = make()
        if frame is not None and is_name(name.value):
            frame.createOrReplaceTempView(name.value)
            self.frames[name.value.lower()] = frame

    def _made(
        self, text: Text, make: "Callable[[], DataFrame]", options: Sequence[SinkOption] = ()
    ) -> "DataFrame | None":
        """The result of `make`; errors of Spark or ours become a problem of `text`, or of the option that they name."""
        from pyspark.errors import PySparkException

        try:
            return make()
        except PySparkException as error:
            self._problems.add(placed(str(error), text), plain(error.getMessage() or str(error)))
        except DuramenError as error:
            self._problems.add(place_of(options, text, str(error)), str(error))
        return None

    # -- sources ------------------------------------------------------------------------------------

    def source(self, source: PipelineSource) -> "DataFrame | None":
        if source.format is not None:
            return self._table(source)
        frame = self._stream(source)
        json = source.json
        if frame is not None and json is not None:
            raw = frame
            frame = self._made(json, lambda: _parsed(raw, json.value))
        return frame if frame is None or source.watermark is None else self._watermarked(frame, source.watermark)

    def _stream(self, source: PipelineSource) -> "DataFrame | None":
        if not check_source(self._pipeline, source, self._problems):
            return None
        options = source_options(self._pipeline, source)
        if self._streams == "read":
            reader = self._spark.readStream.format("duramen").options(**options)
            return self._made(source.location, reader.load)
        columns = columns_read(self._pipeline, source)
        if self._streams == "stream":
            return _without_rows(self._spark, columns)
        # Without partitions, but not a relation that Spark knows to be empty, for which it plans nothing.
        return self._spark.createDataFrame(self._spark.sparkContext.emptyRDD(), columns)

    def _table(self, source: PipelineSource) -> "DataFrame | None":
        def load() -> "DataFrame":
            storage = storage_of(self._pipeline, source)
            if source.format in STORED_FORMATS:
                return _stored(self._spark, source.format, storage)
            if "://" in storage.location:
                raise TableUnsupported(f"{storage.location} is no path: files of {source.format} lie in a directory")
            if not Path(storage.location).exists():
                raise TableForeign(f"there is no table {storage.location}")
            return self._spark.read.format(source.format or "").options(**storage.options).load(storage.location)

        return self._made(source.location, load, source.options)

    def _watermarked(self, frame: "DataFrame", watermark: Watermark) -> "DataFrame | None":
        from pyspark.errors import PySparkException

        column, delay = watermark.column, watermark.delay
        try:
            return frame.withWatermark(column.value, delay.value)
        except PySparkException as error:
            if error.getCondition() == "CANNOT_PARSE_INTERVAL":
                self._problems.add(delay.place, f"delay: {delay.value!r} does not fit; it is a time such as 10 minutes")
            else:
                self._problems.add(placed(str(error), column), plain(error.getMessage() or str(error)))
        return None

    # -- steps --------------------------------------------------------------------------------------

    def step(self, step: Step) -> "DataFrame | None":
        if any(name.value.lower() not in self.frames for name in inputs_of(step)):
            return None  # reported as a problem already
        sql = step.sql
        frame = self._called(step) if sql is None else self._made(sql, lambda: _queried(self._spark, sql.value))
        return frame if frame is None or step.watermark is None else self._watermarked(frame, step.watermark)

    def _called(self, step: Step) -> "DataFrame | None":
        from pyspark.sql import DataFrame

        if not callable(step.function):
            return None
        try:
            made = step.function(*(self.frames[name.value.lower()] for name in step.inputs))
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever the user's code raises is said with its step
            said = plain(str(error)) or "it says nothing"
            self._problems.add(step.name.place, f"step {step.name.value}: {type(error).__name__}: {said}")
            return None
        if isinstance(made, DataFrame):
            return made
        self._problems.add(
            step.name.place, f"step {step.name.value} must return a DataFrame; it returned {type(made).__name__}"
        )
        return None


def _queried(spark: "SparkSession", sql: str) -> "DataFrame":
    """The frame of a query. Raises OptionInvalid for a command, which Spark would execute at once."""
    from pyspark.errors import ParseException

    session: Any = spark._jsparkSession
    parser = session.sessionState().sqlParser()
    parser.parsePlan(sql)
    try:
        parser.parseQuery(sql.rstrip().rstrip(";"))
    except ParseException:
        raise OptionInvalid("sql of a step must be a query, such as SELECT; commands are not run") from None
    return spark.sql(sql)


def _parsed(frame: "DataFrame", ddl: str) -> "DataFrame":
    """The value's fields as columns, besides the record; invalid values have nulls, and their text remains."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StringType, StructType

    schema = StructType.fromDDL(ddl)
    if not isinstance(schema, StructType):
        raise OptionInvalid("json must be columns with their types: carrier STRING, delay INT")
    for taken in sorted({_RECORD, _TEXT} & {name.lower() for name in schema.names}):
        raise OptionInvalid(f"json has the column {taken}, which is the name of what is known of the record")
    whole = StructType([*schema.fields]).add(_TEXT, StringType())
    value = sf.from_json(sf.col("value").cast("string"), whole, {"columnNameOfCorruptRecord": _TEXT})
    fields = [name for name in _RECORD_FIELDS if name in frame.columns]
    record = sf.struct(*fields, sf.col("it").getField(_TEXT).alias(_MALFORMED))
    columns = [sf.col("it").getField(name).alias(name) for name in schema.names]
    return frame.select(value.alias("it"), *fields).select(*columns, record.alias(_RECORD))


def columns_read(pipeline: PipelineModel, source: PipelineSource) -> "StructType":
    """The columns of a stream whose options are right."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(copied_columns(source_options(pipeline, source)))


def _without_rows(spark: "SparkSession", columns: "StructType") -> "DataFrame":
    """A stream without rows. PySpark has no call for it, and each of Spark's own sources has its own columns."""
    from pyspark.sql import DataFrame

    java: Any = spark._jsparkSession
    rows = spark.sparkContext._jsc.emptyRDD().rdd()
    return DataFrame(java.internalCreateDataFrame(rows, java.parseDataType(columns.json()), True), spark)


def check_source(pipeline: PipelineModel, source: PipelineSource, problems: Problems) -> bool:
    """Whether the format accepts the options; a problem has the place of the option that it names."""
    from duramen.spark.read.snapshot_stream import stream_reader_of

    options = checked_options(pipeline, source, problems)
    if options is None:
        return False
    try:
        stream_reader_of(options)
    except OptionInvalid as error:
        problems.add(place_of(source.options, source.location, str(error)), str(error))
        return False
    return True


def place_of(options: Sequence[SinkOption], otherwise: Text, said: str) -> SourcePlace:
    """The place of the option that a message names."""
    at = {option: said.lower().find(option.name.value.lower()) for option in options}
    named = [option for option in options if at[option] >= 0]
    # A message names the wrong one first, and one name may be the prefix of another.
    return min(named, key=lambda option: (at[option], -len(option.name.value))).name.place if named else otherwise.place


def _stored(spark: "SparkSession", format_: str | None, storage: Storage) -> "DataFrame":
    """A table with a log of its own, in its present state. Raises like `reading`, and DependencyMissing."""
    try:
        from duramen.spark.pipelines.tables import delta_frame, iceberg_frame

        return iceberg_frame(spark, storage) if format_ == "iceberg" else delta_frame(spark, storage)
    except ImportError as error:
        raise DependencyMissing(f"tables need {error.name}: pip install 'duramen[tables]'") from None
