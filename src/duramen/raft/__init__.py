"""A Raft replica over Fetch (KIP-595): a pure state machine from messages, time and syncs to effects."""
