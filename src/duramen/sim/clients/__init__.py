"""Clients of a simulated node, by what they do."""
