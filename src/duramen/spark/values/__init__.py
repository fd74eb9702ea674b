"""Values of records to Arrow columns: JSON and Avro, with or without the prefix of a schema registry.

A value that cannot be decoded gives a reason in its row, never an error of the batch. Nothing here knows Spark or
tables.
"""
