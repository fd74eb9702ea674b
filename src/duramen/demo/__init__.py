"""`make demo`: real flights from NATS through the log to Kafka consumers and a Spark table, with a proof."""
