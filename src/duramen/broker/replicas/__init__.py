"""The replicas of partitions on a node's storage: what the pure machine of each says is done, on the partition's log.

`roles` is the way in: it has a replica for each partition that the controller gives to this node. No threads, files or
clock: only ports.
"""
