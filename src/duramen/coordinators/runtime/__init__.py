"""The coordinator runtime, after Kafka's coordinator-common: shards are pure; the runtime stores, applies, responds.

`shard` defines a coordinator kind, `runtime` is the entry point; `active` is a shard at its leader, `applying` applies
a log's committed records to a state, `rows` stores states as rows with checkpoints, `transfer` sends rows to other
nodes.
"""
