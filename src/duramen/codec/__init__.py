"""Bytes to values and back: record batches, compression, the Kafka and NATS protocols. No I/O, no state."""
