"""Invariants of a simulated node."""
