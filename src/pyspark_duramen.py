"""Spark registers `format("duramen")` through the name of this module: a top-level `pyspark_<format>`."""

from duramen.spark.source import DuramenDataSource as DefaultSource

__all__ = ["DefaultSource"]
