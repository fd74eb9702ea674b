"""Streams to tables: declared streams, the next offsets of each, tasks, rounds and the job."""
