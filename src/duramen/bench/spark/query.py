"""The Spark queries of the benchmarks, in a process of their own, with either source.

It is run by path, by an interpreter that may have another PySpark and no Duramen: for the other source it imports
PySpark only. The argument
is JSON with what `main` and the works look up; it prints one JSON line: seconds of each run, and what the runs found.
What `events` finds is, of each event, whose value is its time in ns as text: that time, and µs from it to the function
of the micro-batch.
"""

import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.readwriter import DataStreamReader

from duramen.spark.api import to_arrow_schema

__all__ = ["main"]

Job = Mapping[str, Any]
_Work = Callable[[SparkSession, Job], object]
_KEEP_MS: Final = 86_400_000


def main() -> None:
    """Do what the argument says some times over, and print how long it took."""
    job = json.loads(sys.argv[1])
    spark = _session(f"local[{job['cores']}]", job)
    spark.sparkContext.setLogLevel("ERROR")
    took_s, found = [], []
    for _ in range(job["runs"]):
        for place in ("into", "checkpoint"):
            shutil.rmtree(job.get(place, ""), ignore_errors=True)
        began_s = time.perf_counter()
        answer = _WORKS[job["work"]](spark, job)
        took_s.append(time.perf_counter() - began_s)
        found.append(_written(spark, job) if answer is None else answer)
    print(json.dumps({"took_s": took_s, "found": found}))
    spark.stop()


def _session(master: str, job: Job) -> SparkSession:
    """Ours as its users have it; for the peer the settings are all that there is, and `disk` if it is to have that."""
    if job["format"] == "duramen":
        import duramen.spark

        return duramen.spark.session("bench", master, config=job["config"])
    builder = SparkSession.builder.master(master)
    for name, value in job["config"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if job["disk"]:
        _quicken_local_disk(spark, job)
    return spark


def _quicken_local_disk(spark: SparkSession, job: Job) -> None:
    """As a session of Duramen does it, which the peer's interpreter has none of."""
    jvm: Any = spark.sparkContext._jvm
    files = jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark.sparkContext._jsc.hadoopConfiguration())
    files.setWriteChecksum(False)
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(job["disk"])
    compiler.getClassLoader().loadClass(job["disk class"]).newInstance().replaceIn(files)


def _batch_reader(spark: SparkSession, job: Job) -> DataFrameReader:
    reader = spark.read.format(job["format"]).option("kafka.bootstrap.servers", job["servers"])
    return reader.option("subscribe", job["stream"])


def _batch(spark: SparkSession, job: Job) -> DataFrame:
    return _batch_reader(spark, job).load()


def _stream_reader(spark: SparkSession, job: Job, start: str) -> DataStreamReader:
    reader = spark.readStream.format(job["format"]).option("kafka.bootstrap.servers", job["servers"])
    return reader.option("subscribe", job["stream"]).option("startingOffsets", start)


def _stream(spark: SparkSession, job: Job, start: str) -> DataFrame:
    return _stream_reader(spark, job, start).load()


def _count(spark: SparkSession, job: Job) -> list[int]:
    (row,) = _batch(spark, job).agg(sf.count("*").alias("n"), sf.sum(sf.length("value")).alias("size")).collect()
    return [row["n"], row["size"]]


def _parquet(spark: SparkSession, job: Job) -> None:
    _batch(spark, job).write.parquet(job["into"])


def _files(spark: SparkSession, job: Job) -> None:
    import duramen.spark

    duramen.spark.write_parquet(_batch_reader(spark, job), job["into"])


def _available(spark: SparkSession, job: Job) -> None:
    writer = _stream(spark, job, "earliest").writeStream.format("parquet").trigger(availableNow=True)
    writer.option("checkpointLocation", job["checkpoint"]).start(job["into"]).awaitTermination()


def _streamed_files(spark: SparkSession, job: Job) -> None:
    import duramen.spark

    writer = duramen.spark.stream_parquet(_stream_reader(spark, job, "earliest"), job["into"])
    writer.option("checkpointLocation", job["checkpoint"]).trigger(availableNow=True).start().awaitTermination()


def _delta(spark: SparkSession, job: Job) -> None:
    """A stream into a Delta table: ours as pipelines write it, the other's by Delta's own writer."""
    if job["format"] != "duramen":
        writer = _stream(spark, job, "earliest").writeStream.trigger(availableNow=True)
        writer.option("checkpointLocation", job["checkpoint"]).format("delta").start(job["into"]).awaitTermination()
        return
    from duramen.spark.pipelines.batches import TableBatchWriter
    from duramen.spark.pipelines.checkpoints import PipelineCheckpoint
    from duramen.spark.pipelines.copy import copied_frame
    from duramen.spark.pipelines.delta import DeltaCopySink
    from duramen.spark.tables.port import Storage

    storage = Storage(job["into"])
    columns = to_arrow_schema(_stream(spark, job, "earliest").schema)
    sink = TableBatchWriter(DeltaCopySink(storage, "bench/delta", columns), PipelineCheckpoint(Path(job["checkpoint"])))
    writer = copied_frame(_stream_reader(spark, job, "earliest"), storage).writeStream.foreachBatch(sink)
    writer.option("checkpointLocation", job["checkpoint"]).trigger(availableNow=True).start().awaitTermination()


def _delta_rows(spark: SparkSession, job: Job) -> None:
    """The same as pipelines do it where SQL comes in between: rows go through Java."""
    from duramen.spark.pipelines.batches import TableBatchWriter
    from duramen.spark.pipelines.checkpoints import PipelineCheckpoint
    from duramen.spark.pipelines.delta import DeltaSink
    from duramen.spark.tables.port import Storage

    into = TableBatchWriter(
        DeltaSink(Storage(job["into"]), "bench/delta", None), PipelineCheckpoint(Path(job["checkpoint"]))
    )
    writer = _stream(spark, job, "earliest").writeStream.trigger(availableNow=True)
    writer.option("checkpointLocation", job["checkpoint"]).foreachBatch(into).start().awaitTermination()


def _table(spark: SparkSession, job: Job) -> None:
    """A stream declared to be a Delta table, and filled: as `duramen table enable` and `table run --once` do it."""
    from duramen.base.catalogue.tables import KEPT_OFFSETS
    from duramen.client.http import HttpNode, path_of
    from duramen.spark.translation.creation import JobOptions, make_job

    server, stream = HttpNode(job["http"]), job["stream"]
    config = {"table.format": "delta", "table.location": _table_location(job), KEPT_OFFSETS: ""}
    server.patch(path_of("streams", stream), {"config": config})
    options = JobOptions((stream,), job["servers"], {}, 1, skip_lost=False, keep_ms=_KEEP_MS)
    table_job = make_job(server, spark, options, lambda *_: None)
    if not table_job.run(once=True):
        raise RuntimeError(table_job.accounts()[stream].error)


def _table_location(job: Job) -> str:
    # Not the directory itself, for the table of dead letters lies beside.
    return str(Path(job["into"]) / "table")


def _written(spark: SparkSession, job: Job) -> list[int]:
    """What a work has left that says nothing of it: rows, and the bytes of their values."""
    value = "value"
    if job["work"] in ("parquet", "files", "available", "streamed files"):
        written = spark.read.parquet(job["into"])
    elif job["format"] != "duramen":
        written = spark.read.format("delta").load(job["into"])
    else:
        from deltalake import DeltaTable

        place, value = (_table_location(job), "_value") if job["work"] == "table" else (job["into"], value)
        written = spark.read.parquet(*DeltaTable(place).file_uris())
    (row,) = written.agg(sf.count("*").alias("n"), sf.sum(sf.length(value)).alias("size")).collect()
    return [row["n"], row["size"]]


def _events(spark: SparkSession, job: Job) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    ready = False

    def sink(batch: DataFrame, _: int) -> None:
        nonlocal ready
        rows = batch.select("value").collect()
        now_ns = time.time_ns()
        found.extend((due_ns, (now_ns - due_ns) // 1000) for due_ns in (int(row.value) for row in rows))
        if not ready:
            # Whoever makes the load waits for this line.
            ready = True
            print("ready", flush=True)

    writer = _stream(spark, job, "earliest").writeStream.foreachBatch(sink)
    query = writer.option("checkpointLocation", job["checkpoint"]).start()
    sys.stdin.readline()  # the load is over
    query.processAllAvailable()
    query.stop()
    return found


def _drained(spark: SparkSession, job: Job) -> list[int]:
    """What comes is counted and forgotten: in a long run, whatever this process kept would look like a leak."""
    total = [0, 0]

    def sink(batch: DataFrame, _: int) -> None:
        (row,) = batch.agg(sf.count("*").alias("n"), sf.sum(sf.length("value")).alias("size")).collect()
        if not total[0]:
            print("ready", flush=True)
        total[0] += row["n"]
        total[1] += row["size"] or 0

    writer = _stream(spark, job, "earliest").writeStream.foreachBatch(sink)
    query = writer.option("checkpointLocation", job["checkpoint"]).start()
    sys.stdin.readline()  # the load is over
    query.stop()
    return total


def _newest(spark: SparkSession, job: Job) -> list[int]:
    for _ in sys.stdin:
        (row,) = _batch(spark, job).agg(sf.unix_millis(sf.max("timestamp")).alias("newest")).collect()
        print(json.dumps(row["newest"]), flush=True)
    return []


_WORKS: Final[Mapping[str, _Work]] = {
    "count": _count,
    "parquet": _parquet,
    "files": _files,
    "available": _available,
    "streamed files": _streamed_files,
    "delta": _delta,
    "delta, row by row": _delta_rows,
    "table": _table,
    "events": _events,
    "drained": _drained,
    "newest": _newest,
}


if __name__ == "__main__":
    main()
