"""Clients of a simulated node, by their work."""
