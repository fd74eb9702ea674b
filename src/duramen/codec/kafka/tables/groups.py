"""Groups and their offsets. Data only; the notation is that of `schema`."""

from typing import Final

from duramen.codec.kafka.versions import ApiKey

__all__ = ["REQUESTS", "RESPONSES"]

REQUESTS: Final = {
    ApiKey.OFFSET_COMMIT: """
        group_id string
        generation_id_or_member_epoch int32 1+ = -1
        member_id string 1+
        group_instance_id string? 7+
        retention_time_ms int64 2-4 = -1
        topics []
          name string 0-9
          partitions []
            partition_index int32
            committed_offset int64
            committed_leader_epoch int32 6+ = -1
            commit_timestamp int64 1 = -1
            committed_metadata string?
    """,
    ApiKey.OFFSET_FETCH: """
        group_id string 0-7
        topics []? 0-7
          name string 0-7
          partition_indexes []int32 0-7
        groups [] 8+ once
          group_id string 8+
          member_id string? 9+
          member_epoch int32 9+ = -1
          topics []? 8+
            name string 8-9
            partition_indexes []int32 8+
        require_stable bool 7+
    """,
    ApiKey.FIND_COORDINATOR: """
        key string 0-3
        key_type int8 1+
        coordinator_keys []string 4+ once
    """,
    ApiKey.JOIN_GROUP: """
        group_id string
        session_timeout_ms int32
        rebalance_timeout_ms int32 1+ = -1
        member_id string
        group_instance_id string? 5+
        protocol_type string
        protocols []
          name string
          metadata bytes
        reason string? 8+
    """,
    ApiKey.HEARTBEAT: """
        group_id string
        generation_id int32
        member_id string
        group_instance_id string? 3+
    """,
    ApiKey.LEAVE_GROUP: """
        group_id string
        member_id string 0-2
        members [] 3+
          member_id string 3+
          group_instance_id string? 3+
          reason string? 5+
    """,
    ApiKey.SYNC_GROUP: """
        group_id string
        generation_id int32
        member_id string
        group_instance_id string? 3+
        protocol_type string? 5+
        protocol_name string? 5+
        assignments []
          member_id string
          assignment bytes
    """,
    ApiKey.DESCRIBE_GROUPS: """
        groups []string once
        include_authorized_operations bool 3+
    """,
    ApiKey.LIST_GROUPS: """
        states_filter []string 4+
        types_filter []string 5+
    """,
    ApiKey.DELETE_GROUPS: """
        groups_names []string
    """,
    ApiKey.OFFSET_DELETE: """
        group_id string
        topics []
          name string
          partitions []
            partition_index int32
    """,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: """
        group_id string
        member_id string
        member_epoch int32
        instance_id string?
        rack_id string?
        rebalance_timeout_ms int32 = -1
        subscribed_topic_names []string?
        subscribed_topic_regex string? 1+
        server_assignor string?
        topic_partitions []?
          topic_id uuid
          partitions []int32
    """,
    ApiKey.CONSUMER_GROUP_DESCRIBE: """
        group_ids []string once
        include_authorized_operations bool
    """,
}

RESPONSES: Final = {
    ApiKey.OFFSET_COMMIT: """
        throttle_time_ms int32 3+
        topics []
          name string 0-9
          partitions []
            partition_index int32
            error_code int16
    """,
    ApiKey.OFFSET_FETCH: """
        throttle_time_ms int32 3+
        topics [] 0-7
          name string 0-7
          partitions [] 0-7
            partition_index int32 0-7
            committed_offset int64 0-7
            committed_leader_epoch int32 5-7 = -1
            metadata string? 0-7
            error_code int16 0-7
        error_code int16 2-7
        groups [] 8+
          group_id string 8+
          topics [] 8+
            name string 8-9
            partitions [] 8+
              partition_index int32 8+
              committed_offset int64 8+
              committed_leader_epoch int32 8+ = -1
              metadata string? 8+
              error_code int16 8+
          error_code int16 8+
    """,
    ApiKey.FIND_COORDINATOR: """
        throttle_time_ms int32 1+
        error_code int16 0-3
        error_message string? 1-3
        node_id int32 0-3
        host string 0-3
        port int32 0-3
        coordinators [] 4+
          key string 4+
          node_id int32 4+
          host string 4+
          port int32 4+
          error_code int16 4+
          error_message string? 4+
    """,
    ApiKey.JOIN_GROUP: """
        throttle_time_ms int32 2+
        error_code int16
        generation_id int32 = -1
        protocol_type string? 7+
        protocol_name string?
        leader string
        skip_assignment bool 9+
        member_id string
        members []
          member_id string
          group_instance_id string? 5+
          metadata bytes
    """,
    ApiKey.HEARTBEAT: """
        throttle_time_ms int32 1+
        error_code int16
    """,
    ApiKey.LEAVE_GROUP: """
        throttle_time_ms int32 1+
        error_code int16
        members [] 3+
          member_id string 3+
          group_instance_id string? 3+
          error_code int16 3+
    """,
    ApiKey.SYNC_GROUP: """
        throttle_time_ms int32 1+
        error_code int16
        protocol_type string? 5+
        protocol_name string? 5+
        assignment bytes
    """,
    ApiKey.DESCRIBE_GROUPS: """
        throttle_time_ms int32 1+
        groups []
          error_code int16
          group_id string
          group_state string
          protocol_type string
          protocol_data string
          members []
            member_id string
            group_instance_id string? 4+
            client_id string
            client_host string
            member_metadata bytes
            member_assignment bytes
          authorized_operations int32 3+ = -2147483648
    """,
    ApiKey.LIST_GROUPS: """
        throttle_time_ms int32 1+
        error_code int16
        groups []
          group_id string
          protocol_type string
          group_state string 4+
          group_type string 5+
    """,
    ApiKey.DELETE_GROUPS: """
        throttle_time_ms int32
        results []
          group_id string
          error_code int16
    """,
    ApiKey.OFFSET_DELETE: """
        error_code int16
        throttle_time_ms int32
        topics []
          name string
          partitions []
            partition_index int32
            error_code int16
    """,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: """
        throttle_time_ms int32
        error_code int16
        error_message string?
        member_id string?
        member_epoch int32
        heartbeat_interval_ms int32
        assignment {}?
          topic_partitions []
            topic_id uuid
            partitions []int32
    """,
    ApiKey.CONSUMER_GROUP_DESCRIBE: """
        throttle_time_ms int32
        groups []
          error_code int16
          error_message string?
          group_id string
          group_state string
          group_epoch int32
          assignment_epoch int32
          assignor_name string
          members []
            member_id string
            instance_id string?
            rack_id string?
            member_epoch int32
            client_id string
            client_host string
            subscribed_topic_names []string
            subscribed_topic_regex string?
            assignment {}
              topic_partitions []
                topic_id uuid
                topic_name string
                partitions []int32
            target_assignment {}
              topic_partitions []
                topic_id uuid
                topic_name string
                partitions []int32
            member_type int8 1+ = -1
          authorized_operations int32 = -2147483648
    """,
}
