"""What Spark runs in: Java, PySpark, and sessions that are tuned for streams."""
