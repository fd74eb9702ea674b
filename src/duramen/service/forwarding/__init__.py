"""Requests for partitions that other nodes lead, over HTTP."""
