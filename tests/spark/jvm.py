"""PySpark's way into its Java, which it names as private: here, and nowhere else in the tests."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession

__all__ = ["java_frame", "java_session", "jvm", "local_files"]


def jvm(spark: SparkSession) -> Any:
    """The packages of Java."""
    return spark._jvm


def java_session(spark: SparkSession) -> Any:
    """The session's own object in Java."""
    return spark._jsparkSession


def java_frame(frame: DataFrame) -> Any:
    """The frame's own object in Java."""
    return frame._jdf


def local_files(spark: SparkSession) -> Any:
    """Hadoop's file system of the local disk."""
    return jvm(spark).org.apache.hadoop.fs.FileSystem.getLocal(spark._jsc.hadoopConfiguration())
