"""The pipeline: a Spark streaming query that writes the stream, joined with airline names, into a Parquet table.

The output of Spark and its Java goes to a file, because both write to the standard streams of this process.
"""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from duramen.base.errors import DemoFailed
from duramen.demo.delays import Delay
from duramen.demo.directory import DemoDirectory
from duramen.demo.flights import COLUMNS, NUMBERS
from duramen.demo.node import STREAM
from duramen.spark.launching.jvm import end_java, interrupted_later, quiet
from duramen.spark.launching.sessions import make_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["TableFigures", "Tabulated", "open_spark", "tabulate"]

_STEP_ROWS: Final = 100_000
_LOOK_S: Final = 1
_JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A Java that lives for half a minute has no use for its second compiler: a third less time on two cores."""

_MESSAGE_ID: Final = "CAST(filter(headers, header -> header.key = 'Nats-Msg-Id')[0].value AS STRING) AS message_id"


class TableFigures(NamedTuple):
    """The table: its rows, how many different offsets and flights they have, and how many have no airline's name."""

    rows: int
    offsets: int
    flights: int
    nameless: int


class Tabulated(NamedTuple):
    """What came of it: the table's figures, the delays, the names of the carriers, and the seconds of the query."""

    figures: TableFigures
    delays: list[Delay]
    airlines: dict[str, str]
    seconds: float


@contextlib.contextmanager
def open_spark(directory: DemoDirectory) -> Iterator["SparkSession"]:
    """A Spark session that ends with the block, and its Java with it. Raises DemoFailed, DependencyMissing."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    config = {
        "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(directory.scratch),
        "spark.sql.warehouse.dir": str(directory.scratch / "warehouse"),
    }
    with quiet(directory.spark_log):
        try:
            with interrupted_later((signal.SIGINT,)):
                session = make_session("duramen-demo", config=config)
            yield session
        except (PySparkException, Py4JError, ConnectionError) as error:
            reason = str(error).partition("\n")[0]
            raise DemoFailed(f"Spark failed: {reason}; its log is {directory.spark_log}") from None
        finally:
            end_java()


def tabulate(
    spark: "SparkSession", kafka: str, airlines: Path, directory: DemoDirectory, on_progress: Callable[[int], None]
) -> Tabulated:
    """Run the query until it has read all there is, and aggregate its table. `on_progress` gets the rows so far."""
    began_s = time.perf_counter()
    names = spark.read.csv(str(airlines), header=True).withColumnRenamed("name", "airline")
    query = (
        _flights(spark, kafka)
        .join(names, "carrier", "left")
        .writeStream.format("parquet")
        .option("path", str(directory.table))
        .option("checkpointLocation", str(directory.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        while not query.awaitTermination(_LOOK_S):
            on_progress(sum(step.numInputRows for step in query.recentProgress))
    finally:
        query.stop()
    seconds = time.perf_counter() - began_s
    table = spark.read.parquet(str(directory.table))
    delays, by_carrier = _delays(table)
    return Tabulated(_figures(table), delays, by_carrier, seconds)


def _flights(spark: "SparkSession", kafka: str) -> "DataFrame":
    """The stream, with the flight that each value holds in columns."""
    schema = ", ".join(f"{name} {_type(name)}" for name in COLUMNS)
    return (
        spark.readStream.format("duramen")
        .option("kafka.bootstrap.servers", kafka)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", str(_STEP_ROWS))
        .load(STREAM)
        .selectExpr(
            "partition", "offset", _MESSAGE_ID,
            f"from_json(CAST(value AS STRING), '{schema}', map('mode', 'FAILFAST')) AS it",
        )
        .select("partition", "offset", "message_id", "it.*")
    )  # fmt: skip


def _type(column: str) -> str:
    if column in NUMBERS:
        return "INT"
    return "TIMESTAMP" if column == "time_hour" else "STRING"


def _figures(table: "DataFrame") -> TableFigures:
    row = table.selectExpr(
        "count(*)", "count(DISTINCT partition, offset)", "count(DISTINCT message_id)", "count_if(airline IS NULL)"
    ).first()
    return TableFigures(*row) if row is not None else TableFigures(0, 0, 0, 0)


def _delays(table: "DataFrame") -> tuple[list[Delay], dict[str, str]]:
    from pyspark.sql.functions import expr

    rows = (
        table.groupBy("carrier", "airline", "hour")
        .agg(expr("count(*)"), expr("count(dep_delay)"), expr("coalesce(sum(dep_delay), 0)"))
        .collect()
    )
    names = {carrier: airline or carrier for carrier, airline, *_ in rows}
    return [Delay(carrier, *figures) for carrier, _, *figures in rows], names
