"""Measuring: latency, throughput and the targets of the project, of Duramen and of its peers. Above the node."""
