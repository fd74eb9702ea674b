"""Streams as tables: Delta and Iceberg, without a JVM; what becomes of records on their way there.

A table's own log says which offsets are in it, and nothing else does. Nothing here knows Spark: tasks and driver of a
job call it, and so can any other process.
"""
