"""The coordinator runtime, after Kafka's coordinator-common: shards are pure, the runtime stores, applies and answers.

`shard` is what a coordinator has to be, `runtime` the way in; `active` is a shard at its leader, `applying` brings a
state to what is committed of its log, `rows` keeps states as rows with checkpoints, `transfer` brings rows to others.
"""
