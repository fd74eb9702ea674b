"""Requests between nodes: values, bytes, errors; and the effect runner."""
