"""Transactions whose partitions lie on several nodes."""
