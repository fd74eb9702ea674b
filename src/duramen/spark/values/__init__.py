"""Values of records into Arrow columns: JSON and Avro, with or without the prefix of a schema registry.

A value that cannot be decoded is a reason at its row, never an error of the batch. Nothing here knows Spark or tables.
"""
