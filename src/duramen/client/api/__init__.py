"""The Python API, and what it shares with `duramen.aio`."""
