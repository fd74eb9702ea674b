"""Clients of a simulated cluster, by their work."""
