"""The quorum that orders the metadata log: Raft as Apache Kafka's KRaft lays it over Fetch (KIP-595). Pure.

Pre-vote is KIP-996's, membership that of KIP-853, snapshots those of KIP-630. `machine` is the way in, `port` what
the broker proposes through.
"""
