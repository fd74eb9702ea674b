"""A driver that copies a stream into another with the sink until it is killed; some tasks fail behind their last row.

Arguments: the Kafka address, a directory, the stream, the target, and how many of a hundred tasks fail.
"""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import duramen.spark


def failing(frame: DataFrame, percent: int) -> DataFrame:
    """The same rows, from tasks of which some fail behind their last row; Spark tries them again."""

    def go_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context is not None and context.attemptNumber() < 2 and random.randrange(100) < percent:
            raise RuntimeError("this task fails when it has written")

    return frame.mapInArrow(go_through, frame.schema)


def begin(
    spark: SparkSession, servers: str, directory: Path, stream: str, target: str, *, percent: int, once: bool
) -> StreamingQuery:
    """The query that copies, from its checkpoint if it has one."""
    source = (
        spark.readStream.format("duramen")
        .option("kafka.bootstrap.servers", servers)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 50_000 if once else 500)
        .load(stream)
    )
    writer = (
        failing(source.select("key", "value"), percent)
        .writeStream.format("duramen")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("checkpointLocation", str(directory / "checkpoint"))
    )
    return (writer.trigger(availableNow=True) if once else writer).start()


def main() -> None:
    servers, directory, stream, target, percent = sys.argv[1:]
    config = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = duramen.spark.session("copying", "local[2,4]", config=config)
    spark.sparkContext.setLogLevel("ERROR")
    begin(spark, servers, Path(directory), stream, target, percent=int(percent), once=False).awaitTermination()


if __name__ == "__main__":
    main()
