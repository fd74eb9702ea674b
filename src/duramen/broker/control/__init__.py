"""Requests of nodes to the active controller, and its responses."""
