"""`make demo`: real flights from NATS through the log to Kafka consumers and a Spark table, and the proof of it."""
