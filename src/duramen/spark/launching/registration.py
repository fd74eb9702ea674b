"""Registers `format("duramen")` in sessions whose Java does not find it, because it searches another Python."""

import logging
import sys
from typing import TYPE_CHECKING, Final

from duramen.base.errors import DependencyMissing
from duramen.spark.launching.pythons import has_duramen, python_of
from duramen.spark.launching.requirements import pyspark_problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "register_where_needed"]

_log: Final = logging.getLogger("duramen.spark")


def register(session: "SparkSession") -> None:
    """Register the format with a session. Raises DependencyMissing."""
    problem = pyspark_problem()
    if problem is not None:
        raise DependencyMissing(problem)
    from duramen.spark.datasource import DuramenDataSource

    if type(session).__module__.startswith("pyspark.sql.connect."):
        session.dataSource.register(DuramenDataSource)
        return
    context = session.sparkContext
    before = context.pythonExec
    if _is_local(session):
        context.pythonExec = sys.executable  # Spark runs only on this machine: this Python may do its work
    elif not has_duramen(before):
        raise DependencyMissing(_hint(before))
    try:
        session.dataSource.register(DuramenDataSource)
    finally:
        context.pythonExec = before


def register_where_needed(session: "SparkSession") -> None:
    """Register it if Java would look for it in another Python, or log why it will not be found."""
    python = python_of(session)
    if python == sys.executable:
        return
    if _is_local(session):
        register(session)
    elif not has_duramen(python):
        _log.warning("%s", _hint(python))


def _is_local(session: "SparkSession") -> bool:
    return str(session.sparkContext.master).startswith("local")


def _hint(python: str) -> str:
    return (
        f'Spark\'s driver runs {python}, which has no Duramen, so format("duramen") is not found'
        f" (DATA_SOURCE_NOT_FOUND): activate the environment of {sys.executable} before Spark's Java starts,"
        " so that python3 is that one here and the executors' own there"
    )
