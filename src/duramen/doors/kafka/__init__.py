"""The Kafka door: the Kafka protocol for clients of any library."""
