"""Share groups (KIP-932). Data only; the notation is that of `schema`."""

from typing import Final

from duramen.codec.kafka.versions import ApiKey

__all__ = ["REQUESTS", "RESPONSES"]

REQUESTS: Final = {
    ApiKey.SHARE_GROUP_HEARTBEAT: """
        group_id string
        member_id string
        member_epoch int32
        rack_id string?
        subscribed_topic_names []string?
    """,
    ApiKey.SHARE_GROUP_DESCRIBE: """
        group_ids []string once
        include_authorized_operations bool
    """,
    ApiKey.SHARE_FETCH: """
        group_id string?
        member_id string?
        share_session_epoch int32
        max_wait_ms int32
        min_bytes int32
        max_bytes int32 = 2147483647
        max_records int32
        batch_size int32
        share_acquire_mode int8 2+
        is_renew_ack bool 2+
        topics []
          topic_id uuid
          partitions []
            partition_index int32
            acknowledgement_batches []
              first_offset int64
              last_offset int64
              acknowledge_types []int8
        forgotten_topics_data []
          topic_id uuid
          partitions []int32
    """,
    ApiKey.SHARE_ACKNOWLEDGE: """
        group_id string?
        member_id string?
        share_session_epoch int32
        is_renew_ack bool 2+
        topics []
          topic_id uuid
          partitions []
            partition_index int32
            acknowledgement_batches []
              first_offset int64
              last_offset int64
              acknowledge_types []int8
    """,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: """
        groups [] once
          group_id string
          topics []?
            topic_name string
            partitions []int32
    """,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: """
        group_id string
        topics []
          topic_name string
          partitions []
            partition_index int32
            start_offset int64
    """,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: """
        group_id string
        topics []
          topic_name string
    """,
}

_NODE_ENDPOINTS: Final = """
        node_endpoints []
          node_id int32
          host string
          port int32
          rack string?
"""

RESPONSES: Final = {
    ApiKey.SHARE_GROUP_HEARTBEAT: """
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
    ApiKey.SHARE_GROUP_DESCRIBE: """
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
            rack_id string?
            member_epoch int32
            client_id string
            client_host string
            subscribed_topic_names []string
            assignment {}
              topic_partitions []
                topic_id uuid
                topic_name string
                partitions []int32
          authorized_operations int32 = -2147483648
    """,
    ApiKey.SHARE_FETCH: """
        throttle_time_ms int32
        error_code int16
        error_message string?
        acquisition_lock_timeout_ms int32
        responses []
          topic_id uuid
          partitions []
            partition_index int32
            error_code int16
            error_message string?
            acknowledge_error_code int16
            acknowledge_error_message string?
            current_leader {}
              leader_id int32
              leader_epoch int32
            records bytes
            acquired_records []
              first_offset int64
              last_offset int64
              delivery_count int16
    """
    + _NODE_ENDPOINTS,
    ApiKey.SHARE_ACKNOWLEDGE: """
        throttle_time_ms int32
        error_code int16
        error_message string?
        acquisition_lock_timeout_ms int32 2+
        responses []
          topic_id uuid
          partitions []
            partition_index int32
            error_code int16
            error_message string?
            current_leader {}
              leader_id int32
              leader_epoch int32
    """
    + _NODE_ENDPOINTS,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: """
        throttle_time_ms int32
        groups []
          group_id string
          topics []
            topic_name string
            topic_id uuid
            partitions []
              partition_index int32
              start_offset int64
              leader_epoch int32
              lag int64 1+ = -1
              error_code int16
              error_message string?
          error_code int16
          error_message string?
    """,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: """
        throttle_time_ms int32
        error_code int16
        error_message string?
        responses []
          topic_name string
          topic_id uuid
          partitions []
            partition_index int32
            error_code int16
            error_message string?
    """,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: """
        throttle_time_ms int32
        error_code int16
        error_message string?
        responses []
          topic_name string
          topic_id uuid
          error_code int16
          error_message string?
    """,
}
