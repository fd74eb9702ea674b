"""The requirements of `format("duramen")` on Spark, with a one-sentence error if they are not met."""

import importlib
import importlib.util
from typing import Final

from duramen.base.errors import DependencyMissing

__all__ = ["JOBS_PYSPARK", "NEEDED_PYSPARK", "pyspark_problem", "require_pandas"]

NEEDED_PYSPARK: Final = "4.0"
"""The first version with data sources in Python that has a writer of Arrow batches."""

JOBS_PYSPARK: Final = "4.2"
"""The first version with limits on what a Python stream reads (`latestOffset(start, limit)`)."""

_USED: Final = (
    ("pyspark.sql.datasource", "DataSourceArrowWriter"),
    ("pyspark.sql.datasource", "DataSourceStreamReader"),
)
_USED_BY_JOBS: Final = (
    ("pyspark.sql.datasource", "DataSourceStreamArrowWriter"),
    ("pyspark.sql.streaming.datasource", "SupportsTriggerAvailableNow"),
    ("pyspark.sql.streaming.datasource", "ReadMaxRows"),
)


def pyspark_problem(*, for_jobs: bool = False) -> str | None:
    """The reason why the installed PySpark cannot be used, and the remedy; None if it can.

    `for_jobs` checks the needs of pipelines and `duramen table run`, which exceed those of the format.
    """
    try:
        version = importlib.import_module("pyspark").__version__
    except ImportError:
        return f"PySpark is not installed: pip install 'duramen[spark]', or pyspark {NEEDED_PYSPARK} or newer"
    used, needed = (_USED + _USED_BY_JOBS, JOBS_PYSPARK) if for_jobs else (_USED, NEEDED_PYSPARK)
    for module, name in used:
        try:
            getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            what = "pipelines and `duramen table run` need" if for_jobs else "the format duramen needs"
            return f"PySpark {version} is too old: {what} {needed} or newer"
    return None


def require_pandas(what: str) -> None:
    """Raises DependencyMissing if the driver lacks pandas, without which PySpark has no `mapInArrow`."""
    if importlib.util.find_spec("pandas") is None:
        raise DependencyMissing(f"{what} pandas, without which PySpark has no mapInArrow: pip install 'duramen[spark]'")
