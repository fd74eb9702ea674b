"""Spark: `format("duramen")` for reading and writing streams, and a preconfigured session.

Executors import this package, so it imports nothing by itself.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

__all__ = ["register", "report_lag", "session", "stream_parquet", "write_parquet"]


def register(session: "SparkSession") -> None:
    """Register `format("duramen")` with a session that does not find it: DATA_SOURCE_NOT_FOUND.

    Spark looks for it in the Python of `PYSPARK_DRIVER_PYTHON` or `PYSPARK_PYTHON`, else in the `python3` on the PATH.
    A session of `session()` has it. With a `local` master this process's Python does the format's work from then on. A
    session of Spark Connect takes it too; its server needs Duramen.

    Raises DependencyMissing, which names the Python that has no Duramen.
    """
    from duramen.spark.launching.registration import register

    register(session)


def report_lag(session: "SparkSession") -> None:
    """Show the lag of this session's streaming queries as consumer groups; `session()` does that by itself.

    The group is the source's `kafka.group.id`, else the query's name; a query that has neither is not shown.
    """
    from duramen.spark.launching.lag import report_lag

    report_lag(session)


def session(
    app_name: str = "duramen",
    master: str | None = None,
    *,
    tuned: bool = True,
    config: Mapping[str, str] | None = None,
) -> "SparkSession":
    """A Spark session with the right Java and Python, tuned unless `tuned=False`; `config` goes before the tuning.

    Without a `master` it is the one of `spark-submit`, else `local[*]`.

    The lag of its streaming queries is shown (`report_lag`).

    Returns the session that there is, if there is one. Raises DependencyMissing where PySpark or Java is missing.
    """
    from duramen.spark.launching.sessions import make_session

    return make_session(app_name, master, tuned=tuned, config=config)


def write_parquet(reader: "DataFrameReader", path: str, mode: str = "errorifexists") -> None:
    """Write what a reader of the format duramen reads as Parquet files in a directory, without a detour through Java.

    `reader` is `spark.read.format("duramen")` with its options; the files have the columns that it would give. `path`
    is a directory that the driver and the executors share, `mode` as in `DataFrameWriter.parquet`: errorifexists,
    ignore, append or overwrite. Spark's tasks write the files; nobody finds any of them before all are whole.

    Raises TableForeign where the directory is there, or another's; TableUnsupported for a location that is no path;
    OptionInvalid, TableStorageFailed; and what reading raises.
    """
    from duramen.spark.files.parquet import write_to

    write_to(reader, path, mode)


def stream_parquet(reader: "DataStreamReader", path: str) -> "DataStreamWriter":
    """The same for a streaming query, each micro-batch exactly once: returns its writer, to be started.

    `reader` is `spark.readStream.format("duramen")` with its options. Give what is returned a `checkpointLocation`, a
    trigger and a name as any other. What is committed stands in `_spark_metadata`, as Spark's own file sink has it and
    Spark's readers know it. The query's rows are files: `numInputRows` counts those.

    Raises TableForeign, TableUnsupported, OptionInvalid, TableStorageFailed; the query ends with CheckpointInvalid
    where checkpoint and directory do not belong together.
    """
    from duramen.spark.files.parquet import stream_to

    return stream_to(reader, path)
