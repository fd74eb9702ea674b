"""Spark's Java as a child of this process: its output is redirected, and it ends with this process."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

__all__ = ["end_java", "interrupted_later", "quiet"]

_STOP_S: Final = 30.0


@contextlib.contextmanager
def quiet(log: Path) -> Iterator[None]:
    """Redirect the standard streams of this process, and of processes started in this block, to a file."""
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
def interrupted_later(numbers: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM)) -> Iterator[None]:
    """Defer these signals to the end of the block: a Java that is still starting would be left running."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []
    before = [signal.signal(one, lambda number, _: seen.append(number)) for one in numbers]
    try:
        yield
    finally:
        for one, handler in zip(numbers, before, strict=True):
            signal.signal(one, handler)
        # Even if the block fails: Java may have got the signal too, and ended.
        for number in seen:
            signal.raise_signal(number)


def end_java() -> None:
    """Stop Spark and wait for the end of its Java: it ends with its standard input."""
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
