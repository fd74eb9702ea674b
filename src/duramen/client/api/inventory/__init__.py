"""The inventory of topics in the Python API, blocking and asyncio."""
