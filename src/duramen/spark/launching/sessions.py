"""A Spark session configured for streams: the right Java and Python, and tuning (reasons: docs/doors/spark.md)."""

import os
import re
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from duramen.base.errors import DependencyMissing
from duramen.spark.launching.column_pruning import prune_columns
from duramen.spark.launching.home import lean_home_set
from duramen.spark.launching.java import Java, find_java
from duramen.spark.launching.localdisk import quicken_local_disk
from duramen.spark.launching.registration import register_where_needed
from duramen.spark.launching.requirements import pyspark_problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JAVA_OPTIONS", "java_options", "make_session", "tuning"]

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
"""The setting with the options of the driver's Java."""

_TUNING: Final[Mapping[str, str]] = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
"""Settings that make micro-batches faster with any master."""

_LOCAL_TUNING: Final[Mapping[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
"""Settings for a driver and executors in one process with checkpoints on its disk."""

_CHECKPOINTS: Final = "spark.sql.streaming.checkpointFileManagerClass"

_QUICK_SPAWN: Final = "-Djdk.lang.Process.launchMechanism=VFORK"
"""One process less for each start: Hadoop starts some for the checkpoint files of each micro-batch."""

_NO_QUICK_SPAWN_JAVA: Final = 25  # from this version on, it prints that the option will be removed

_COLLECTOR: Final = "-XX:+UseParallelGC"
"""For a heap as small as Spark's it uses less CPU than Java's own choice, and so does its compiled code."""

_DAEMON: Final = ("spark.python.daemon.module", "duramen.spark.launching.daemon")
"""Python workers that end silently when Spark needs no more of their output."""

_ANALYSIS: Final[Mapping[str, str]] = {
    JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.ui.enabled": "false",
}
"""For a Java that ends after seconds: it compiles no code twice and serves no pages."""

_JAVA_VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_JAVA_DEFAULTS: Final = "spark.driver.defaultJavaOptions"
"""Other places of Java options that choose a collector: with two collectors it does not start."""

_CHOSEN: Final = re.compile(r"-XX:\+Use\w+GC\b")

_MASTER: Final = "local[*]"

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""The variable in which `spark-submit` passes the port of its Java process."""

_OTHER_PYTHONS: Final = frozenset({"spark.pyspark.python", "spark.pyspark.driver.python"})
"""Settings of the workers' interpreter."""


def make_session(
    app_name: str = "duramen",
    master: str | None = None,
    *,
    tuned: bool = True,
    config: Mapping[str, str] | None = None,
    runs: bool = True,
) -> "SparkSession":
    """A new session, or the existing one. `config` overrides the tuning, which `tuned=False` omits.

    The default `master` is that of `spark-submit`, else `local[*]`. Without `runs` it only analyses queries, and starts
    as fast as possible.

    Java and Python are chosen only if the JVM does not run yet. Raises DependencyMissing.
    """
    problem = pyspark_problem()
    if problem is not None:
        raise DependencyMissing(problem)
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from duramen.spark.launching.lag import report_lag

    if _SUBMITTED in os.environ:
        SparkContext._ensure_initialized()
    master = master or _submitted_master()
    java = None
    if SparkContext._gateway is None:
        java = find_java()
        os.environ["JAVA_HOME"] = java.home
        # Spark's default is any `python3` on the PATH, which need not have Duramen.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name).master(master)
    settings = {**(tuning(master, java, config) if tuned else {}), **({} if runs else _ANALYSIS), **(config or {})}
    lean = tuned and master.startswith("local") and not settings.keys() & _OTHER_PYTHONS
    if lean and os.environ.get("PYSPARK_PYTHON") == sys.executable:  # which has this package
        settings.setdefault(*_DAEMON)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with lean_home_set() if lean else nullcontext():
        made = builder.getOrCreate()
    register_where_needed(made)
    if not runs:
        return made
    if tuned:
        prune_columns(made)
        if master.startswith("local"):
            quicken_local_disk(made)
    report_lag(made)
    return made


def _submitted_master() -> str:
    from pyspark import SparkConf

    return SparkConf().get("spark.master", _MASTER)


def tuning(master: str, java: Java | None, config: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings for a master, besides `config`; `java` is the one to start, None if it runs already."""
    settings = dict(_TUNING)
    if master.startswith("local"):
        # Hundreds of tiny tasks per micro-batch (Spark's default is 200) are for clusters.
        settings |= {**_LOCAL_TUNING, "spark.sql.shuffle.partitions": str(os.cpu_count() or 1)}
        settings[_CHECKPOINTS] = _checkpoint_class()
        if java is not None:
            said = [os.environ.get(name, "") for name in _JAVA_VARIABLES]
            said.append((config or {}).get(_JAVA_DEFAULTS, ""))
            if options := java_options(java, " ".join(said)):
                settings[JAVA_OPTIONS] = options
    return settings


def _checkpoint_class() -> str:
    """The class that writes checkpoints to a local disk; Spark 4.1 moved it."""
    from pyspark import __version__

    package = "" if __version__.startswith("4.0.") else "checkpointing."
    return f"org.apache.spark.sql.execution.streaming.{package}FileSystemBasedCheckpointFileManager"


def java_options(java: Java, said: str = "") -> str:
    """The options of a Java that does all of a session's work, besides those set elsewhere (`said`)."""
    quick = java.major < _NO_QUICK_SPAWN_JAVA and sys.platform == "linux"
    options = [(_QUICK_SPAWN, quick), (_COLLECTOR, not _CHOSEN.search(said))]
    return " ".join(option for option, fits in options if fits)
