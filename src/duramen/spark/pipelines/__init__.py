"""Pipelines: a file says what is read, what becomes of it in steps, and where it goes; one Spark application runs it.

What is imported from here is for pipelines that are written in Python: `from duramen.spark.pipelines import Pipeline`.
"""

from duramen.spark.pipelines.definition.builder import Pipeline

__all__ = ["Pipeline"]
