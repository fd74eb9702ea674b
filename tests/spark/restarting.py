"""A driver that copies streams into directories, a query for each, until it is killed. Prints a line a micro-batch.

Arguments: the Kafka address, a directory, and streams; one whose name ends with `-files` is copied by `stream_parquet`.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

import duramen.spark


def begin(spark: SparkSession, servers: str, directory: Path, stream: str, *, until_caught_up: bool) -> StreamingQuery:
    """The query that copies `stream`, from its checkpoint if it has one."""
    source = (
        spark.readStream.format("duramen")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", stream)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 4000 if until_caught_up else 200)
        .option("columns", "partition,offset,value")
    )
    if stream.endswith("-files"):
        writer = duramen.spark.stream_parquet(source, str(directory / stream))
    else:
        writer = source.load().writeStream.format("parquet").option("path", str(directory / stream))
    writer = writer.queryName(stream).option("checkpointLocation", str(directory / f"{stream}-checkpoint"))
    return writer.trigger(availableNow=True).start() if until_caught_up else writer.start()


class MetadataPublisher(StreamingQueryListener):
    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        if event.progress.numInputRows:
            print(event.progress.name, event.progress.batchId, flush=True)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass


def main() -> None:
    servers, directory, *streams = sys.argv[1:]
    config = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = duramen.spark.session("restarting", "local[2]", config=config)
    spark.streams.addListener(MetadataPublisher())
    for stream in streams:
        begin(spark, servers, Path(directory), stream, until_caught_up=False)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
