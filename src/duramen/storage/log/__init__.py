"""A log: its segments, producers, transactions, and what the checkpoint keeps of it."""
