"""The NATS door: subscriptions, capture into streams, acknowledgements, gaps; requests for queues and the inventory."""
