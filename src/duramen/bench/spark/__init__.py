"""Spark reading and writing through `format("duramen")`, beside Spark's own Kafka source on Apache Kafka."""
