"""Faults of a simulated cluster."""
