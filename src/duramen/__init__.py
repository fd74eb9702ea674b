"""Duramen: a durable, replicated log for people who work in Python."""

__all__ = ["__version__"]

__version__ = "0.1.0"
