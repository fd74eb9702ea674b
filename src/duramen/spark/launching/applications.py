"""A Spark application for the time of a block: what it and its Java say goes to a file, and both go in the end."""

import contextlib
import logging
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from duramen.base.errors import DependencyMissing, SparkFailed
from duramen.spark.launching.jvm import end_java, interrupted_later, quiet
from duramen.spark.launching.masters import unreachable
from duramen.spark.launching.requirements import pyspark_problem
from duramen.spark.launching.sessions import make_session
from duramen.spark.launching.why import why

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["application"]

_SAID_IN_LOG: Final = ("JAVA_GATEWAY_EXITED", "on a stopped SparkContext")


@contextlib.contextmanager
def application(
    name: str, master: str, config: Mapping[str, str], log: Path | None, *, runs: bool = True
) -> Iterator["SparkSession"]:
    """Its session; `log` is where Spark's own log goes; nobody sees it where it is None. `runs` as in `make_session`.

    Raises DependencyMissing, SparkFailed, OSError.
    """
    problem = pyspark_problem(for_jobs=True)
    if problem is not None:
        raise DependencyMissing(problem)
    problem = unreachable(master)
    if problem is not None:
        raise SparkFailed(f"Spark does not start on {master}: {problem}")
    logging.getLogger("SQLQueryContextLogger").disabled = True  # prints every error with Java's traceback
    with contextlib.ExitStack() as stack:
        stack.callback(end_java)
        unread = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="duramen-spark-")), "log")
        yield _started(name, master, config, unread if log is None else log, runs=runs)


def _started(name: str, master: str, config: Mapping[str, str], log: Path, *, runs: bool) -> "SparkSession":
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    before = log.stat().st_size if log.exists() else 0
    try:
        with interrupted_later(), quiet(log):
            session = make_session(name, master, config=config, runs=runs)
    except (PySparkException, Py4JError, ConnectionError) as error:
        said = str(error)  # some of it is asked of Java, which still runs, or has written why it does not
        if any(one in said for one in _SAID_IN_LOG):
            said = log.read_bytes()[before:].decode(errors="replace") or said
        ended = "its Java has ended: " if isinstance(error, ConnectionError) else ""
        raise SparkFailed(f"Spark does not start on {master}: {ended}{why(said)}") from None
    # It prints a traceback where Java ends before this process does, which is said otherwise.
    server: Any = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = _nothing
    return session


def _nothing(*_: object) -> None:
    """In the place of what prints."""
