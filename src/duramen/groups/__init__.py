"""Consumer groups of both protocols and share groups: their state machines and records, which are Kafka's. Pure."""
