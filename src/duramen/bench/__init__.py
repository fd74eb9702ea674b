"""Benchmarks: latency, throughput and the project's targets, for Duramen and its peers. Above the node."""
