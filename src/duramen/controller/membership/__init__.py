"""Membership of this node in a cluster: registration, heartbeats, replicas, and the metadata it publishes."""
