"""The implemented APIs: numbers, versions, and the first flexible version of each. Data only."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["APIS", "FEATURES", "Api", "ApiKey", "FinalizedFeature"]


class ApiKey(IntEnum):
    """Numbers of the APIs: Kafka's, and from 10,000 on Duramen's own, which Kafka's clients pass over."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    BEGIN_BATCH = 10_000
    DECIDE_BATCH = 10_001


class Api(NamedTuple):
    """Versions `low` to `high` are implemented; `flexible` is the first with compact lengths and tags."""

    key: ApiKey
    low: int
    high: int
    flexible: int


APIS: Mapping[int, Api] = MappingProxyType(
    {
        api.key: api
        for api in (
            # Old librdkafka compresses only for brokers that name Produce 0 (KAFKA-18659); 0 to 2 are answered with
            # an error, because their batches are of an older format.
            Api(ApiKey.PRODUCE, 0, 12, 9),
            Api(ApiKey.FETCH, 4, 16, 12),
            Api(ApiKey.LIST_OFFSETS, 1, 10, 6),
            Api(ApiKey.METADATA, 0, 13, 9),
            Api(ApiKey.OFFSET_COMMIT, 2, 9, 8),
            Api(ApiKey.OFFSET_FETCH, 1, 9, 6),
            Api(ApiKey.FIND_COORDINATOR, 0, 6, 3),
            Api(ApiKey.JOIN_GROUP, 0, 9, 6),
            Api(ApiKey.HEARTBEAT, 0, 4, 4),
            Api(ApiKey.LEAVE_GROUP, 0, 5, 4),
            Api(ApiKey.SYNC_GROUP, 0, 5, 4),
            Api(ApiKey.DESCRIBE_GROUPS, 0, 5, 5),
            Api(ApiKey.LIST_GROUPS, 0, 5, 3),
            Api(ApiKey.API_VERSIONS, 0, 4, 3),
            Api(ApiKey.CREATE_TOPICS, 2, 7, 5),
            Api(ApiKey.DELETE_TOPICS, 1, 6, 4),
            Api(ApiKey.DELETE_RECORDS, 0, 2, 2),
            Api(ApiKey.INIT_PRODUCER_ID, 0, 5, 2),
            Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4),
            Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 3, 3),  # from 4 on brokers ask brokers
            Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, 3),
            Api(ApiKey.END_TXN, 0, 5, 3),
            Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, 3),
            Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, 4),
            Api(ApiKey.ALTER_CONFIGS, 0, 2, 2),
            Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, 2),
            Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 4, 2),
            Api(ApiKey.CREATE_PARTITIONS, 0, 3, 2),
            Api(ApiKey.DELETE_GROUPS, 0, 2, 2),
            Api(ApiKey.ELECT_LEADERS, 0, 2, 2),
            Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1),
            Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, 0),
            Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0),
            Api(ApiKey.OFFSET_DELETE, 0, 0, 1),
            Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, 1),
            Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, 1),
            Api(ApiKey.DESCRIBE_QUORUM, 0, 2, 0),
            Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, 0),
            Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0),
            Api(ApiKey.UNREGISTER_BROKER, 0, 0, 0),
            Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, 0),
            Api(ApiKey.LIST_TRANSACTIONS, 0, 1, 0),
            Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, 0),
            Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, 0),
            Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0),
            Api(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, 0),
            Api(ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, 0),
            Api(ApiKey.SHARE_FETCH, 1, 2, 0),
            Api(ApiKey.SHARE_ACKNOWLEDGE, 1, 2, 0),
            Api(ApiKey.ADD_RAFT_VOTER, 0, 1, 0),
            Api(ApiKey.REMOVE_RAFT_VOTER, 0, 0, 0),
            Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, 0),
            Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0, 0),
            Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0, 0),
            Api(ApiKey.BEGIN_BATCH, 0, 0, 0),
            Api(ApiKey.DECIDE_BATCH, 0, 0, 0),
        )
    }
)


class FinalizedFeature(NamedTuple):
    """A feature in versions `low` to `high`, of which this cluster uses `finalized`; clients decide by it."""

    name: str
    low: int
    high: int
    finalized: int


FEATURES: tuple[FinalizedFeature, ...] = (
    FinalizedFeature("group.version", 0, 1, 1),  # 1: groups of the consumer protocol (KIP-848)
    FinalizedFeature(
        "transaction.version", 0, 2, 2
    ),  # 2: partitions join by being written to, ends bump the epoch (KIP-890)
    FinalizedFeature("share.version", 0, 1, 1),  # 1: share groups (KIP-932)
)
