"""Connections: bytes to requests, answers to bytes in order, memory, back-pressure."""
