"""Spark for the time of a block: what it and its Java say goes to a file, and both are gone in the end."""

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from duramen.spark.jvm import end_java, interrupted_later, quiet
from duramen.spark.pipelines.model import Declared
from duramen.spark.sessions import make_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["open_spark"]

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
        with interrupted_later(), quiet(log or Path(os.devnull)):
            session = make_session(f"duramen-{pipeline.name.value}", master, config={**_CONFIG, **own, **config})
        yield session
    finally:
        end_java()
