"""Spark registers `format("duramen")` through the name of this module: a top-level `pyspark_<format>`."""

from typing import TYPE_CHECKING

from duramen.spark.launching.requirements import pyspark_problem

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]


def _source() -> "type[DataSource]":
    if pyspark_problem() is None:
        from duramen.spark.datasource import DuramenDataSource

        return DuramenDataSource
    from duramen.spark.launching.outdated import OutdatedDataSource

    return OutdatedDataSource


DefaultSource = _source()
