"""Admin requests about leaders, replicas, nodes and the quorum. Data only, in the notation of `schema`."""

from typing import Final

from duramen.codec.kafka.versions import ApiKey

__all__ = ["REQUESTS", "RESPONSES"]

REQUESTS: Final = {
    ApiKey.ELECT_LEADERS: """
        election_type int8 1+
        topic_partitions []?
          topic string
          partitions []int32
        timeout_ms int32 = 60000
    """,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: """
        timeout_ms int32 = 60000
        allow_replication_factor_change bool 1+ = true
        topics []
          name string
          partitions []
            partition_index int32
            replicas []int32?
    """,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: """
        timeout_ms int32 = 60000
        topics []? once
          name string
          partition_indexes []int32
    """,
    ApiKey.DESCRIBE_QUORUM: """
        topics []
          topic_name string
          partitions []
            partition_index int32
    """,
    ApiKey.DESCRIBE_CLUSTER: """
        include_cluster_authorized_operations bool
        endpoint_type int8 1+ = 1
        include_fenced_brokers bool 2+
    """,
    ApiKey.UNREGISTER_BROKER: """
        broker_id int32
    """,
    ApiKey.ADD_RAFT_VOTER: """
        cluster_id string?
        timeout_ms int32
        voter_id int32
        voter_directory_id uuid
        listeners []
          name string
          host string
          port uint16
        ack_when_committed bool 1+ = true
    """,
    ApiKey.REMOVE_RAFT_VOTER: """
        cluster_id string?
        voter_id int32
        voter_directory_id uuid
    """,
}

RESPONSES: Final = {
    ApiKey.ELECT_LEADERS: """
        throttle_time_ms int32
        error_code int16 1+
        replica_election_results []
          topic string
          partition_result []
            partition_id int32
            error_code int16
            error_message string?
    """,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: """
        throttle_time_ms int32
        allow_replication_factor_change bool 1+ = true
        error_code int16
        error_message string?
        responses []
          name string
          partitions []
            partition_index int32
            error_code int16
            error_message string?
    """,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: """
        throttle_time_ms int32
        error_code int16
        error_message string?
        topics []
          name string
          partitions []
            partition_index int32
            replicas []int32
            adding_replicas []int32
            removing_replicas []int32
    """,
    ApiKey.DESCRIBE_QUORUM: """
        error_code int16
        error_message string? 2+
        topics []
          topic_name string
          partitions []
            partition_index int32
            error_code int16
            error_message string? 2+
            leader_id int32
            leader_epoch int32
            high_watermark int64
            current_voters []
              replica_id int32
              replica_directory_id uuid 2+
              log_end_offset int64
              last_fetch_timestamp int64 1+ = -1
              last_caught_up_timestamp int64 1+ = -1
            observers []
              replica_id int32
              replica_directory_id uuid 2+
              log_end_offset int64
              last_fetch_timestamp int64 1+ = -1
              last_caught_up_timestamp int64 1+ = -1
        nodes [] 2+
          node_id int32 2+
          listeners [] 2+
            name string 2+
            host string 2+
            port uint16 2+
    """,
    ApiKey.DESCRIBE_CLUSTER: """
        throttle_time_ms int32
        error_code int16
        error_message string?
        endpoint_type int8 1+ = 1
        cluster_id string
        controller_id int32 = -1
        brokers []
          broker_id int32
          host string
          port int32
          rack string?
          is_fenced bool 2+
        cluster_authorized_operations int32 = -2147483648
    """,
    ApiKey.UNREGISTER_BROKER: """
        throttle_time_ms int32
        error_code int16
        error_message string?
    """,
    ApiKey.ADD_RAFT_VOTER: """
        throttle_time_ms int32
        error_code int16
        error_message string?
    """,
    ApiKey.REMOVE_RAFT_VOTER: """
        throttle_time_ms int32
        error_code int16
        error_message string?
    """,
}
