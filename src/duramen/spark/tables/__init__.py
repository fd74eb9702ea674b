"""Streams as tables: Delta and Iceberg, without a JVM, and the conversion of records for them.

A table's own log is the only record of the offsets that it has. Nothing here knows Spark: tasks and driver of a job
call it, and so can any other process.
"""
