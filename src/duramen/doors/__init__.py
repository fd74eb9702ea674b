"""The doors: Kafka, NATS, HTTP. Each speaks its protocol on one side and calls the broker on the other."""
