"""What users of Python meet: the synchronous client, what it shares with `duramen.aio`, what both take and give.

The names for users are those of `duramen`, `duramen.aio`, `duramen.errors` and `duramen.testing`.
"""
