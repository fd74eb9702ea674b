"""The Kafka door: what a client of any Kafka library talks to."""
