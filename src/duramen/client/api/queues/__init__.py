"""Light queues in the Python API, blocking and asyncio."""
