"""Connections: bytes to requests, responses to bytes in order, memory, back-pressure."""
