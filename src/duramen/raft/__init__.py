"""A Raft replica over Fetch (KIP-595): a pure machine that takes messages, time and syncs, and returns effects."""
