"""A node as a member of a cluster: its part in the controller and its replicas, put together on the broker's ports.

`member` is what the broker sees, `replicating` the replicas with those around them. No threads, files or clock.
"""
