"""The inventory of topics at work: `shard` runs its state machines, `inventory` is what the doors ask."""
