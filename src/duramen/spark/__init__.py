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
    A session of `session()` has it. With a `local` master, this process's Python runs the format's code from then on.
    Sessions of Spark Connect are supported; their server needs Duramen.

    Raises DependencyMissing, which names the Python that has no Duramen.
    """
    from duramen.spark.launching.registration import register

    register(session)


def report_lag(session: "SparkSession") -> None:
    """Show the lag of this session's streaming queries as consumer groups; `session()` calls it.

    The group is the source's `kafka.group.id`, else the query's name; a query without either is not shown.
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
    """A Spark session with the right Java and Python, tuned unless `tuned=False`; `config` overrides the tuning.

    The default `master` is that of `spark-submit`, else `local[*]`.

    The lag of its streaming queries is shown (`report_lag`).

    Returns the existing session, if there is one. Raises DependencyMissing if PySpark or Java is missing.
    """
    from duramen.spark.launching.sessions import make_session

    return make_session(app_name, master, tuned=tuned, config=config)


def write_parquet(reader: "DataFrameReader", path: str, mode: str = "errorifexists") -> None:
    """Write the records of a reader of the format duramen as Parquet files to a directory, without Java.

    `reader` is `spark.read.format("duramen")` with its options; the files have the columns that it would return. `path`
    is a directory that the driver and the executors share, `mode` as in `DataFrameWriter.parquet`: errorifexists,
    ignore, append or overwrite. Spark's tasks write the files; readers see all of them or none.

    Raises TableForeign if the directory exists, or belongs to a table; TableUnsupported for a location that is not a
    path; OptionInvalid, TableStorageFailed; and the errors of the read.
    """
    from duramen.spark.files.parquet import write_to

    write_to(reader, path, mode)


def stream_parquet(reader: "DataStreamReader", path: str) -> "DataStreamWriter":
    """Like `write_parquet`, for a streaming query, each micro-batch exactly once: returns its writer, to be started.

    `reader` is `spark.readStream.format("duramen")` with its options. Set a `checkpointLocation`, a trigger and a name
    on the result as on any other writer. The committed files are listed in `_spark_metadata`, like those of Spark's own
    file sink, and Spark's readers follow it. The query's rows are files: `numInputRows` counts those.

    Raises TableForeign, TableUnsupported, OptionInvalid, TableStorageFailed; the query ends with CheckpointInvalid if
    checkpoint and directory do not belong together.
    """
    from duramen.spark.files.parquet import stream_to

    return stream_to(reader, path)
