"""All checks of a pipeline before it runs: its parts, SQL, schemas, sinks and streams."""

from typing import TYPE_CHECKING, Any, NamedTuple

from duramen.client import BrokerCluster
from duramen.spark.pipelines.definition.graph import ordered
from duramen.spark.pipelines.definition.model import PipelineModel, PipelineSource, Sink, Text
from duramen.spark.pipelines.definition.problems import Problems, meant
from duramen.spark.pipelines.frames import Frames, Streams, build, check_source, checked_options, columns_read
from duramen.spark.pipelines.sinks import check, check_columns, shaped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["check_copies", "check_streams", "needs_spark", "plans", "prepare"]


def needs_spark(pipeline: PipelineModel) -> bool:
    """Whether only Spark can check the pipeline: it has SQL, functions, types in text, or tables to read."""
    sources = any(one.format or one.json or one.watermark for one in pipeline.sources)
    sinks = any(one.json or one.key or one.keys or one.delete_when for one in pipeline.sinks)
    return bool(pipeline.steps or sources or sinks)


def check_copies(pipeline: PipelineModel, problems: Problems) -> None:
    """The checks of `prepare` for a pipeline without need for Spark: its sinks take streams unchanged."""
    streams = {one.name.value.lower(): one for one in pipeline.sources if check_source(pipeline, one, problems)}
    for sink in pipeline.sinks:
        source = streams.get(sink.input.value.lower())
        if source is not None:
            check_columns(pipeline, sink, _Columns(columns_read(pipeline, source)), problems)


class _Columns(NamedTuple):
    schema: "StructType"


def prepare(spark: "SparkSession", pipeline: PipelineModel, problems: Problems, streams: Streams = "read") -> Frames:
    """The frames of a pipeline, whose `streams` are as in `build`; empty if `problems` has errors.

    A problem of one part hides only those that follow from it.
    """
    frames = build(spark, pipeline, ordered(pipeline, problems), problems, streams)
    for sink in pipeline.sinks:
        frame = frames.get(sink.input.value.lower())
        if frame is not None:
            check(spark, pipeline, sink, frame, problems)
    return {} if problems.errors() else frames


def check_streams(pipeline: PipelineModel, problems: Problems) -> None:
    """Check with the brokers the streams of sources and sinks.

    Raises ServerUnreachable, with host and port, if none responds in time.
    """
    wanted: list[PipelineSource | Sink] = [
        *(source for source in pipeline.sources if source.format is None),
        *(sink for sink in pipeline.sinks if sink.kind == "stream"),
    ]
    for part in wanted:
        options = checked_options(pipeline, part, problems)
        if options is None:
            continue
        timeout_ms = options.number("kafka.request.timeout.ms") or 0
        with BrokerCluster(options.text("kafka.bootstrap.servers"), timeout_s=timeout_ms / 1000) as cluster:
            _check_there(cluster, part.location, problems, written=isinstance(part, Sink))


def _check_there(cluster: BrokerCluster, location: Text, problems: Problems, *, written: bool) -> None:
    names = [name.strip() for name in location.value.split(",") if name.strip()]
    there = cluster.topics(names)
    missing = [name for name in names if name not in there]
    if missing:
        known = [name for name, topic in cluster.topics(None).items() if not topic.internal]
        said = meant(missing[0], known)
        # A broker may have more streams than fit in a line.
        hint = said if said.startswith("; did you mean") else "; `duramen stream list` names those that there are"
        if written:
            hint += f"; `duramen stream create {missing[0]}` makes it"
        problems.add(location.place, f"there is no stream {missing[0]}{hint}")


def plans(spark: "SparkSession", pipeline: PipelineModel, mode: str, problems: Problems) -> dict[str, str]:
    """Spark's plan of a micro-batch of each sink, by the sink's name; empty if `problems` has errors."""
    prepare(spark, pipeline, problems, "stream")
    if problems.errors():
        return {}
    frames = build(spark, pipeline, ordered(pipeline, problems), problems, "batch")
    jvm: Any = spark._jvm
    explained = jvm.org.apache.spark.sql.api.python.PythonSQLUtils.explainString
    return {
        sink.name.value: str(explained(shaped(frames[sink.input.value.lower()], sink)._jdf.queryExecution(), mode))
        for sink in pipeline.sinks
    }
