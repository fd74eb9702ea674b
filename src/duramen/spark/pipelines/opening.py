"""Spark for the time of a block: what it and its Java say goes to a file, and both are gone in the end."""

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from duramen.spark.pipelines.model import Declared
from duramen.spark.sessions import make_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["open_spark"]

_STOP_S: Final = 30.0
_CONFIG: Final[Mapping[str, str]] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Queries take turns: none waits for all of another's tasks.
    "spark.scheduler.mode": "FAIR",
}


@contextlib.contextmanager
def open_spark(
    pipeline: Declared, master: str, config: Mapping[str, str], log: Path | None
) -> Iterator["SparkSession"]:
    """A session for a pipeline; `log` is where Spark's own log goes, nowhere where it is None.

    Raises DependencyMissing, OSError.
    """
    own = {option.name.value: option.value.value for option in pipeline.spark}
    logging.getLogger("SQLQueryContextLogger").disabled = True  # prints every error with Java's traceback
    try:
        with _interrupted_later(), _quiet(log or Path(os.devnull)):
            session = make_session(f"duramen-{pipeline.name.value}", master, config={**_CONFIG, **own, **config})
        yield session
    finally:
        _end_java()


@contextlib.contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """What begins in this block, which is Spark's Java, has the file for its standard streams."""
    kept = [os.dup(number) for number in (1, 2)]
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        for number in (1, 2):
            os.dup2(file, number)
        yield
    finally:
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)
        os.close(file)


@contextlib.contextmanager
def _interrupted_later() -> Iterator[None]:
    """Signals wait for the end of the block: a Java that only just starts is nobody's, and would be left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(one, lambda number, _: seen.append(number)) for one in numbers]
    try:
        yield
    finally:
        for one, handler in zip(numbers, before, strict=True):
            signal.signal(one, handler)
    for number in seen:
        signal.raise_signal(number)


def _end_java() -> None:
    """Stop Spark and wait until its Java is gone: it ends with its standard input."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    with contextlib.suppress(Py4JError, ConnectionError):
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    if gateway is None:
        return
    with contextlib.suppress(Py4JError, ConnectionError):
        gateway.shutdown()
    process = gateway.proc
    process.stdin.close()
    process.wait(_STOP_S)
