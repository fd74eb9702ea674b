"""What Spark has to be for `format("duramen")`, said in one sentence where it is not."""

import importlib
from typing import Final

__all__ = ["NEEDED_PYSPARK", "pyspark_problem"]

NEEDED_PYSPARK: Final = "4.2"
"""The first version with limits on what a Python stream reads (`latestOffset(start, limit)`)."""

_USED: Final = (
    ("pyspark.sql.datasource", "DataSourceArrowWriter"),
    ("pyspark.sql.datasource", "DataSourceStreamArrowWriter"),
    ("pyspark.sql.streaming.datasource", "SupportsTriggerAvailableNow"),
    ("pyspark.sql.streaming.datasource", "ReadMaxRows"),
)


def pyspark_problem() -> str | None:
    """Why the installed PySpark cannot be used, and what to install; None where it can."""
    try:
        version = importlib.import_module("pyspark").__version__
    except ImportError:
        return f"PySpark is not installed: pip install 'duramen[spark]', or pyspark {NEEDED_PYSPARK} or newer"
    for module, name in _USED:
        try:
            getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            return f"PySpark {version} is too old for the format duramen, which needs {NEEDED_PYSPARK} or newer"
    return None
