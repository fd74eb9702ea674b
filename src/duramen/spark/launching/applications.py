"""A Spark application for the time of a block: what it and its Java say goes to a file, and both go in the end."""

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from duramen.spark.launching.jvm import end_java, interrupted_later, quiet
from duramen.spark.launching.sessions import make_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["application"]


@contextlib.contextmanager
def application(name: str, master: str, config: Mapping[str, str], log: Path | None) -> Iterator["SparkSession"]:
    """Its session; `log` is where Spark's own log goes, nowhere where it is None. Raises DependencyMissing, OSError."""
    logging.getLogger("SQLQueryContextLogger").disabled = True  # prints every error with Java's traceback
    try:
        with interrupted_later(), quiet(log or Path(os.devnull)):
            session = make_session(name, master, config=config)
        yield session
    finally:
        end_java()
