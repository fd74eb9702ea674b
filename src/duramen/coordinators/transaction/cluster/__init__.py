"""Transactions whose partitions are on several nodes."""
