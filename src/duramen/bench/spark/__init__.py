"""Spark reads and writes through `format("duramen")`, compared with Spark's own Kafka source on Apache Kafka."""
