"""The Python API, and the parts that it shares with `duramen.aio`."""
