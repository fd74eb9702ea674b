"""Leases on snapshots of keyed streams: `shard` is their state machine, `leases` what the broker and the doors ask."""
