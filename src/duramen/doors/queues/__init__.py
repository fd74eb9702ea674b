"""Queues as JSON: requests and responses of HTTP and NATS, executed on the shards."""
