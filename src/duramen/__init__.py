"""Duramen: a durable log for people who work in Python: NATS subjects and Kafka topics in one log."""

__all__ = ["__version__"]

__version__ = "0.1.0"
