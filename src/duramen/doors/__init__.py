"""The doors: Kafka, NATS, HTTP, and other nodes. Each decodes a protocol and calls the broker through `service`."""
