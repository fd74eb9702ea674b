"""Throttles catch-up replication, so that producers hardly notice it."""
