"""The first requests of every client: versions, the cluster, topics, offsets.

Data only, in the notation of `schema`.
"""

from typing import Final

from duramen.codec.kafka.versions import ApiKey

__all__ = ["REQUESTS", "RESPONSES"]

REQUESTS: Final = {
    ApiKey.LIST_OFFSETS: """
        replica_id int32
        isolation_level int8 2+
        topics []
          name string
          partitions []
            partition_index int32
            current_leader_epoch int32 4+ = -1
            timestamp int64
            max_num_offsets int32 0 = 1
            says_origin bool 6+ tag 10000
            last_records int64 6+ tag 10001 = -1
        timeout_ms int32 10+
    """,
    ApiKey.METADATA: """
        topics []? once
          topic_id uuid 10+
          name string?
        allow_auto_topic_creation bool 4+ = true
        include_cluster_authorized_operations bool 8-10
        include_topic_authorized_operations bool 8+
    """,
    ApiKey.API_VERSIONS: """
        client_software_name string 3+
        client_software_version string 3+
    """,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: """
        replica_id int32 3+ = -2
        topics []
          topic string
          partitions []
            partition int32
            current_leader_epoch int32 2+ = -1
            leader_epoch int32
    """,
}

RESPONSES: Final = {
    ApiKey.LIST_OFFSETS: """
        throttle_time_ms int32 2+
        topics []
          name string
          partitions []
            partition_index int32
            error_code int16
            old_style_offsets []int64 0
            timestamp int64 1+ = -1
            offset int64 1+ = -1
            leader_epoch int32 4+ = -1
            created_ms int64 6+ tag 10000 = -1
            start_moved_ms int64 6+ tag 10001 = -1
            last_offset int64 6+ tag 10002 = -1
            late_records int64 6+ tag 10003 = 0
            late_newest_ms int64 6+ tag 10004 = -1
    """,
    ApiKey.METADATA: """
        throttle_time_ms int32 3+
        brokers []
          node_id int32
          host string
          port int32
          rack string? 1+
        cluster_id string? 2+
        controller_id int32 1+ = -1
        topics []
          error_code int16
          name string?
          topic_id uuid 10+
          is_internal bool 1+
          partitions []
            error_code int16
            partition_index int32
            leader_id int32
            leader_epoch int32 7+ = -1
            replica_nodes []int32
            isr_nodes []int32
            offline_replicas []int32 5+
          topic_authorized_operations int32 8+ = -2147483648
        cluster_authorized_operations int32 8-10 = -2147483648
        error_code int16 13+
    """,
    ApiKey.API_VERSIONS: """
        error_code int16
        api_keys []
          api_key int16
          min_version int16
          max_version int16
        throttle_time_ms int32 1+
        supported_features [] 3+ tag 0
          name string 3+
          min_version int16 3+
          max_version int16 3+
        finalized_features_epoch int64 3+ tag 1 = -1
        finalized_features [] 3+ tag 2
          name string 3+
          max_version_level int16 3+
          min_version_level int16 3+
        zk_migration_ready bool 3+ tag 3
    """,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: """
        throttle_time_ms int32 2+
        topics []
          topic string
          partitions []
            error_code int16
            partition int32
            leader_epoch int32 1+ = -1
            end_offset int64 = -1
    """,
}
