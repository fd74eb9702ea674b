"""Spark for a pipeline, for the duration of a block."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from duramen.spark.launching.applications import application
from duramen.spark.launching.requirements import require_pandas
from duramen.spark.pipelines.definition.model import PipelineModel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["open_spark"]

_CONFIG: Final[Mapping[str, str]] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Queries alternate: none waits for all of another's tasks.
    "spark.scheduler.mode": "FAIR",
}


@contextlib.contextmanager
def open_spark(
    pipeline: PipelineModel, master: str, config: Mapping[str, str], log: Path | None, *, runs: bool = True
) -> Iterator["SparkSession"]:
    """A session for a pipeline; `log` is the file of Spark's own log, None discards it.

    Without `runs` it only analyses queries, and starts as fast as possible.

    Raises DependencyMissing, SparkFailed, OSError.
    """
    require_pandas("pipelines need")
    own = {option.name.value: option.value.value for option in pipeline.spark}
    with application(f"duramen-{pipeline.name.value}", master, {**_CONFIG, **own, **config}, log, runs=runs) as session:
        yield session
