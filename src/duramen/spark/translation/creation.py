"""Assembles the job: streams as a node reports them, tables as they are declared, tasks on Spark."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from duramen.base.errors import SparkFailed
from duramen.client.http import HttpNode
from duramen.spark.declared import DeclaredTable
from duramen.spark.tables.port import Declaration, LakeTable
from duramen.spark.tables.registry import open_dead_letters, open_table
from duramen.spark.translation.job import Seen, TableJob
from duramen.spark.translation.log import SourceLog
from duramen.spark.translation.round import Round
from duramen.spark.translation.streams import declared_streams
from duramen.spark.translation.table_writer import TableWriter
from duramen.spark.translation.task import TaskResult, TranslationTask, run

__all__ = ["JobOptions", "SparkRunner", "make_job", "open_tables"]


class JobOptions(NamedTuple):
    """The streams, none for all that have tables; access to brokers and storage; the job's parameters."""

    streams: tuple[str, ...]
    kafka: str
    storage: Mapping[str, str]
    parallel: int
    skip_lost: bool
    keep_ms: int


def open_tables(declaration: Declaration) -> tuple[LakeTable, LakeTable]:
    """The table and that of its dead letters, created if missing."""
    return open_table(declaration), open_dead_letters(declaration)


def make_job(server: HttpNode, session: SparkSession, options: JobOptions, seen: Seen) -> TableJob:
    """A job on that Spark session."""
    runner = SparkRunner(session)

    def find() -> dict[str, DeclaredTable]:
        found = declared_streams(server, options.streams, options.storage)
        return {name: table for name, (table, _) in found.items()}

    def keeper(table: DeclaredTable) -> TableWriter:
        declaration = table.declaration
        snapshots = server.address if table.keyed and declaration.upsert else ""
        log = SourceLog(options.kafka, declaration.stream, declaration.stream_id, options.skip_lost, snapshots)
        round_ = Round(declaration, log, open_tables, runner, runner.slots)
        return TableWriter(log, round_, lambda: open_table(declaration), keep_ms=options.keep_ms)

    return TableJob(find, keeper, parallel=options.parallel, seen=seen)


class SparkRunner:
    """Runs the tasks of one round as one Spark job; several threads may do so concurrently."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext

    @property
    def slots(self) -> int:
        """The number of tasks that run concurrently."""
        return max(1, self._context.defaultParallelism)

    def __call__(self, tasks: Sequence[TranslationTask]) -> Sequence[TaskResult]:
        """The result of each task. Raises SparkFailed."""
        self._context.setJobDescription(f"table of {tasks[0].log.stream}")
        try:
            return self._context.parallelize(tasks, len(tasks)).map(run).collect()
        except (Py4JError, PySparkException) as error:
            raise SparkFailed(_first_line(error)) from None


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(getattr(error, "java_exception", None) or error).splitlines()]
    return next((line for line in lines if line), type(error).__name__)
