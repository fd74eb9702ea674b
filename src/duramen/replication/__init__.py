"""Replication of one partition: a leader and its followers, by in-sync set and high watermark. Pure.

Leader epochs and divergence follow KIP-101 and KIP-279, over Fetch as in KIP-595; AlterPartition follows KIP-497, with
the broker epochs of KIP-903. `machine` is the entry point.
"""
