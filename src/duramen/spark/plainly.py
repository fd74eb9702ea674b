"""Errors from Spark's Python workers as one line."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from duramen.base.errors import DuramenError

__all__ = ["without_traceback"]


@contextmanager
def without_traceback() -> Iterator[None]:
    """For code that Spark calls in a worker process: an error of ours is shown without a Python traceback.

    PySpark reads this variable when it reports the error, with which the process ends.
    """
    try:
        yield
    except DuramenError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
