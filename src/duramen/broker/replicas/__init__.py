"""The replicas of partitions on a node's storage: executes the effects of each pure state machine on its log.

`roles` is the entry point: it has a replica for each partition that the controller assigns to this node. No threads,
files or clock: only ports.
"""
