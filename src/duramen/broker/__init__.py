"""The data plane of a node: partitions, produce, fetch, quotas, replicas, views. No I/O, clock or event loop."""
