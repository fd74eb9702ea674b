"""A pipeline run in this process with the tests' session, until all there was is done."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from duramen.spark.pipelines.checkpoints import Checkpoints
from duramen.spark.pipelines.checks import check_streams, prepare
from duramen.spark.pipelines.definition.loader import load
from duramen.spark.pipelines.definition.problems import Problems
from duramen.spark.pipelines.run import Application, Terms
from duramen.spark.pipelines.status import PipelineStatus


class Seen:
    """Notes what a pipeline tells."""

    def __init__(self) -> None:
        self.last: PipelineStatus | None = None
        self.rows_of: dict[str, list[Mapping[str, Any]]] = {}

    def status(self, status: PipelineStatus) -> None:
        self.last = status

    def rows(self, query: str, batch_id: int, rows: list[Mapping[str, Any]]) -> None:
        del batch_id
        self.rows_of.setdefault(query, []).extend(rows)


def problems_of(spark: SparkSession, file: Path) -> list[str]:
    """What is wrong with a file, as `duramen pipeline validate --offline` looks at it with Spark."""
    problems = Problems()
    declared = load(file, problems)
    if declared is not None:
        prepare(spark, declared, problems, "stream")
    return [problem.said(file.name) for problem in problems]


def run_once(spark: SparkSession, file: Path, *, restarts: int = 0, seen: Seen | None = None) -> Seen:
    """Run a file's pipeline as `duramen pipeline run --once` does. Raises PipelineFailed."""
    problems, seen = Problems(), seen or Seen()
    declared = load(file, problems)
    assert declared is not None, list(problems)
    check_streams(declared, problems)
    frames = prepare(spark, declared, problems)
    assert not problems.errors(), list(problems)
    checkpoints = Checkpoints(file.parent / "checkpoints" / declared.name.value, declared.name.value)
    with checkpoints.held():
        terms = Terms("local[2]", once=True, restarts=restarts)
        Application(declared, frames, checkpoints, terms, seen).run(threading.Event().wait)
    return seen


def numbers(table: Path) -> list[int]:
    """The values in a Delta table, which are numbers."""
    return sorted(int(row["value"]) for row in DeltaTable(str(table)).to_pyarrow_table().to_pylist())
