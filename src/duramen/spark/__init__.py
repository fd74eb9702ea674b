"""Spark: `format("duramen")` for reading and writing streams, and a session that is ready for it.

Executors import this, so it imports nothing by itself.
"""
