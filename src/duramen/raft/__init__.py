"""A Raft replica over Fetch (KIP-595): a pure state machine that takes messages, time and syncs, returns effects."""
