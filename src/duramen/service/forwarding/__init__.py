"""Requests for partitions and shards that other nodes lead: sent to these nodes, and served for them."""
