"""A log: segments, producers, transactions, and its state in the checkpoint."""
