"""The inventory of topics at run time: `shard` runs its state machines, `inventory` serves the doors."""
