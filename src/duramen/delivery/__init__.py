"""Acquisition, redelivery and delivery counts by an opaque position, shared by share groups and queues. Pure."""
