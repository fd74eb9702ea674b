"""Spark: `format("duramen")` for reading and writing streams, and a session that is ready for it.

Executors import this, so it imports nothing by itself.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["report_lag", "session"]


def report_lag(session: "SparkSession") -> None:
    """Show the lag of this session's streaming queries as consumer groups; `session()` does that by itself.

    The group is the source's `kafka.group.id`, else the query's name; a query that has neither is not shown.
    """
    from duramen.spark.read.lag import report_lag

    report_lag(session)


def session(
    app_name: str = "duramen",
    master: str = "local[*]",
    *,
    tuned: bool = True,
    config: Mapping[str, str] | None = None,
) -> "SparkSession":
    """A Spark session with the right Java and Python, tuned unless `tuned=False`; `config` goes before the tuning.

    The lag of its streaming queries is shown (`report_lag`).

    Returns the session that there is, if there is one. Raises DependencyMissing where PySpark or Java is missing.
    """
    from duramen.spark.launching.sessions import make_session

    return make_session(app_name, master, tuned=tuned, config=config)
