"""A driver that copies a stream into another with the sink until it is killed; some tasks fail behind their last row.

Arguments: the Kafka address, a directory, the stream, the target, and how many of a hundred tasks fail; then, for a
cluster, its master. There just as many tasks stand still behind their last row, until a copy of theirs is through.
Where none fails, the driver ends when all that there is has been copied.
"""

import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import duramen.spark

STILL_S = 120.0

CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What a task has read comes to its sink at once: not all of it is behind a row that never comes.
    "spark.buffer.size": "1024",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
}
CLUSTER = {
    "spark.cores.max": "2",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.task.maxFailures": "8",
    # Executors that stand still are given up.
    "spark.network.timeout": "60s",
    "spark.network.timeoutInterval": "10s",
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.task.duration.threshold": "1s",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
}


def disturbed(frame: DataFrame, percent: int, still_percent: int, still_s: float, go: Path) -> DataFrame:
    """The same rows, from tasks of which some fail behind their last row, and some stand still there.

    Spark tries again what has failed. What stands still goes on once the file `go` is there, or `still_s` have passed.
    """

    def go_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        if attempt < 2 and random.randrange(100) < percent:
            raise RuntimeError("this task fails when it has written")
        if attempt == 0 and random.randrange(100) < still_percent:
            until = time.monotonic() + still_s
            while time.monotonic() < until and not go.exists():
                time.sleep(0.05)

    return frame.mapInArrow(go_through, frame.schema)


def begin(
    spark: SparkSession, servers: str, directory: Path, stream: str, target: str,
    *, percent: int, once: bool, still_percent: int = 0, still_s: float = STILL_S, sink: str = "duramen",
) -> StreamingQuery:  # fmt: skip
    """The query that copies, from its checkpoint if it has one; `sink` is the format that it writes."""
    source = (
        spark.readStream.format("duramen")
        .option("kafka.bootstrap.servers", servers)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 50_000 if once else 500)
        .load(stream)
    )
    writer = (
        disturbed(source.select("key", "value"), percent, still_percent, still_s, directory / "go")
        .writeStream.format(sink)
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("kafka.batch.size", 100)
        .option("checkpointLocation", str(directory / "checkpoint"))
    )
    return (writer.trigger(availableNow=True) if once else writer).start()


def main() -> None:
    servers, directory, stream, target, percent, *masters = sys.argv[1:]
    config = CONFIG
    if masters:
        config = CONFIG | CLUSTER | {"spark.eventLog.dir": (Path(directory) / "events").as_uri()}
    spark = duramen.spark.session("copying", masters[0] if masters else "local[2,4]", config=config)
    spark.sparkContext.setLogLevel("ERROR")
    begin(
        spark, servers, Path(directory), stream, target,
        percent=int(percent), once=percent == "0", still_percent=int(percent) if masters else 0,
    ).awaitTermination()  # fmt: skip
    spark.stop()


if __name__ == "__main__":
    main()
