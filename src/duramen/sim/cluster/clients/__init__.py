"""Clients of a simulated cluster, by what they do."""
