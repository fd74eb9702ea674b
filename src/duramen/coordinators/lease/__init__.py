"""Leases on snapshots of keyed streams: `shard` is the state machine, `leases` serves the broker and the doors."""
