"""Queues as JSON: what HTTP and NATS take and give, brought to the shards."""
