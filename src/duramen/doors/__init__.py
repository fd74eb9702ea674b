"""The ways in: Kafka, NATS, HTTP. Each speaks its protocol on one side and the broker's calls on the other."""
