"""A Spark session that is ready for streams: the right Java and Python, and tuning (docs/doors/spark.md says why)."""

import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from duramen.base.errors import DependencyMissing
from duramen.spark.launching.home import lean_home_set
from duramen.spark.launching.java import find_java
from duramen.spark.launching.requirements import pyspark_problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LOCAL_TUNING", "TUNING", "make_session"]

TUNING: Final[Mapping[str, str]] = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
"""What makes micro-batches quicker with any master."""

LOCAL_TUNING: Final[Mapping[str, str]] = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
"""What is right where driver and executors are one process and checkpoints lie on its disk."""

_OTHER_PYTHONS: Final = frozenset({"spark.pyspark.python", "spark.pyspark.driver.python"})
"""Settings of the interpreter that workers run."""


def make_session(
    app_name: str = "duramen",
    master: str = "local[*]",
    *,
    tuned: bool = True,
    config: Mapping[str, str] | None = None,
) -> "SparkSession":
    """A session, or the one that there is. `config` goes before the tuning, which `tuned=False` leaves out.

    Java and Python are chosen only where the JVM does not run yet. Raises DependencyMissing.
    """
    problem = pyspark_problem()
    if problem is not None:
        raise DependencyMissing(problem)
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from duramen.spark.read.lag import report_lag

    if SparkContext._gateway is None:
        os.environ["JAVA_HOME"] = find_java().home
        # Spark's default is whatever `python3` is on the PATH, which need not have Duramen.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name).master(master)
    settings = {**(_tuning(master) if tuned else {}), **(config or {})}
    for name, value in settings.items():
        builder = builder.config(name, value)
    lean = tuned and master.startswith("local") and not settings.keys() & _OTHER_PYTHONS
    with lean_home_set() if lean else nullcontext():
        made = builder.getOrCreate()
    report_lag(made)
    return made


def _tuning(master: str) -> dict[str, str]:
    tuning = dict(TUNING)
    if master.startswith("local"):
        # Hundreds of tiny tasks a micro-batch (Spark's default is 200) are for clusters.
        tuning |= {**LOCAL_TUNING, "spark.sql.shuffle.partitions": str(os.cpu_count() or 1)}
    return tuning
