"""Tasks of tables run by Spark: no row goes through the JVM, only what each task is told and what it says."""

from collections.abc import Sequence

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from duramen.base.errors import SparkFailed
from duramen.spark.translation.task import TaskResult, TranslationTask, run

__all__ = ["SparkRunner"]


class SparkRunner:
    """Runs the tasks of one round as one Spark job; several threads may do so beside each other."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext

    @property
    def slots(self) -> int:
        """How many tasks run beside each other."""
        return max(1, self._context.defaultParallelism)

    def __call__(self, tasks: Sequence[TranslationTask]) -> Sequence[TaskResult]:
        """What became of each. Raises SparkFailed."""
        self._context.setJobDescription(f"table of {tasks[0].log.stream}")
        try:
            return self._context.parallelize(tasks, len(tasks)).map(run).collect()
        except (Py4JError, PySparkException) as error:
            raise SparkFailed(_first_line(error)) from None


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(getattr(error, "java_exception", None) or error).splitlines()]
    return next((line for line in lines if line), type(error).__name__)
