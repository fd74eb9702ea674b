"""Pipelines: a file declares sources, steps and sinks; one Spark application runs it.

Names imported here are for pipelines written in Python: `from duramen.spark.pipelines import Pipeline`.
"""

from duramen.spark.pipelines.definition.builder import Pipeline

__all__ = ["Pipeline"]
