"""Appends of batches to logs."""
