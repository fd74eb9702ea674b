"""A Spark application for the duration of a block: its output goes to a file, and it and its Java end with the block.

The master of a standalone cluster is probed before Java starts, because Spark itself retries for minutes.
"""

import contextlib
import logging
import re
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from duramen.base.errors import DependencyMissing, SparkFailed
from duramen.spark.launching.jvm import end_java, interrupted_later, quiet
from duramen.spark.launching.requirements import pyspark_problem
from duramen.spark.launching.sessions import make_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["application", "unreachable", "why"]

_STANDALONE: Final = re.compile(r"spark://(\S+:\d{1,5}(?:,\S+:\d{1,5})*)")
_TIMEOUT_S: Final = 10.0
_JAVA: Final = re.compile(r"^(.+)\nError: Could not create the Java Virtual Machine", re.MULTILINE)
_REASON: Final = re.compile(r"Application has been killed\. Reason: (.+)$", re.MULTILINE)
_EXCEPTION: Final = re.compile(
    r'^(?:Exception in thread "[^"]*" |Caused by: |: )?[\w.$]+(?:Exception|Error): (.+)$', re.MULTILINE
)
_CLASS: Final = re.compile(r"^\[[A-Z][A-Z0-9_.]+\] |\s*SQLSTATE: \w{5}.*")
_SAID_IN_LOG: Final = ("JAVA_GATEWAY_EXITED", "on a stopped SparkContext")


@contextlib.contextmanager
def application(
    name: str, master: str, config: Mapping[str, str], log: Path | None, *, runs: bool = True
) -> Iterator["SparkSession"]:
    """Its session; `log` is the file of Spark's own log; None discards it. `runs` as in `make_session`.

    Raises DependencyMissing, SparkFailed, OSError.
    """
    problem = pyspark_problem(for_jobs=True)
    if problem is not None:
        raise DependencyMissing(problem)
    problem = unreachable(master)
    if problem is not None:
        raise SparkFailed(f"Spark does not start on {master}: {problem}")
    logging.getLogger("SQLQueryContextLogger").disabled = True  # it prints every error with Java's traceback
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
        said = str(error)  # parts of it come from Java, which is still running, or has logged the reason
        if any(one in said for one in _SAID_IN_LOG):
            said = log.read_bytes()[before:].decode(errors="replace") or said
        ended = "its Java has ended: " if isinstance(error, ConnectionError) else ""
        raise SparkFailed(f"Spark does not start on {master}: {ended}{why(said)}") from None
    # It prints a traceback if Java ends before this process, which is reported otherwise.
    server: Any = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = _nothing
    return session


def _nothing(*_: object) -> None:
    """A replacement for functions that print."""


def unreachable(master: str) -> str | None:
    """Why no master responds at `spark://HOST:PORT`, or any of several with commas between; None for other masters."""
    named = _STANDALONE.fullmatch(master)
    problems = []
    for address in named[1].split(",") if named else ():
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT_S).close()
        except (OSError, OverflowError) as error:
            problems.append(f"{address} cannot be reached: {getattr(error, 'strerror', None) or error}")
        else:
            return None
    return ", ".join(problems) or None


def why(said: str) -> str:
    """The innermost reason: Java's or Spark's master's own, else the last named exception, else line 1."""
    own = _JAVA.search(said) or _REASON.search(said)
    exceptions = _EXCEPTION.findall(said)
    line = own[1] if own else exceptions[-1] if exceptions else next(iter(said.strip().splitlines()), "")
    return _CLASS.sub("", line.strip()).removesuffix(".") or "it does not say why"
