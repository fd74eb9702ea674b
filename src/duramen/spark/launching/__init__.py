"""The environment of Spark: Java, PySpark, and sessions tuned for streams."""
