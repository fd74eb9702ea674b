"""Replication of one partition: a leader and the replicas that follow it, by in-sync set and high watermark. Pure.

Leader epochs and where histories part are KIP-101's and KIP-279's, over Fetch as in KIP-595; AlterPartition is that of
KIP-497 with the broker epochs of KIP-903. `machine` is the way in.
"""
