"""Topics, configs and other admin requests. Data only, in the notation of `schema`."""

from typing import Final

from duramen.codec.kafka.versions import ApiKey

__all__ = ["REQUESTS", "RESPONSES"]

REQUESTS: Final = {
    ApiKey.CREATE_TOPICS: """
        topics []
          name string
          num_partitions int32
          replication_factor int16
          assignments []
            partition_index int32
            broker_ids []int32
          configs []
            name string
            value string?
        timeout_ms int32 = 60000
        validate_only bool 1+
    """,
    ApiKey.DELETE_TOPICS: """
        topics [] 6+
          name string? 6+
          topic_id uuid 6+
        topic_names []string 0-5
        timeout_ms int32
    """,
    ApiKey.DELETE_RECORDS: """
        topics []
          name string
          partitions []
            partition_index int32
            offset int64
        timeout_ms int32
    """,
    ApiKey.DESCRIBE_CONFIGS: """
        resources [] once
          resource_type int8
          resource_name string
          configuration_keys []string?
        include_synonyms bool 1+
        include_documentation bool 3+
    """,
    ApiKey.ALTER_CONFIGS: """
        resources []
          resource_type int8
          resource_name string
          configs []
            name string
            value string?
        validate_only bool
    """,
    ApiKey.ALTER_REPLICA_LOG_DIRS: """
        dirs []
          path string
          topics []
            name string
            partitions []int32
    """,
    ApiKey.DESCRIBE_LOG_DIRS: """
        topics []? once
          topic string
          partitions []int32
    """,
    ApiKey.CREATE_PARTITIONS: """
        topics []
          name string
          count int32
          assignments []?
            broker_ids []int32
        timeout_ms int32
        validate_only bool
    """,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: """
        resources []
          resource_type int8
          resource_name string
          configs []
            name string
            config_operation int8
            value string?
        validate_only bool
    """,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: """
        components []
          entity_type string
          match_type int8
          match string?
        strict bool
    """,
    ApiKey.ALTER_CLIENT_QUOTAS: """
        entries []
          entity []
            entity_type string
            entity_name string?
          ops []
            key string
            value float64
            remove bool
        validate_only bool
    """,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: """
        topics [] once
          name string
        response_partition_limit int32 = 2000
        cursor {}?
          topic_name string
          partition_index int32
    """,
}

RESPONSES: Final = {
    ApiKey.CREATE_TOPICS: """
        throttle_time_ms int32 2+
        topics []
          name string
          topic_id uuid 7+
          error_code int16
          error_message string? 1+
          topic_config_error_code int16 5+ tag 0
          num_partitions int32 5+ = -1
          replication_factor int16 5+ = -1
          configs []? 5+
            name string 5+
            value string? 5+
            read_only bool 5+
            config_source int8 5+ = -1
            is_sensitive bool 5+
    """,
    ApiKey.DELETE_TOPICS: """
        throttle_time_ms int32 1+
        responses []
          name string?
          topic_id uuid 6+
          error_code int16
          error_message string? 5+
    """,
    ApiKey.DELETE_RECORDS: """
        throttle_time_ms int32
        topics []
          name string
          partitions []
            partition_index int32
            low_watermark int64
            error_code int16
    """,
    ApiKey.DESCRIBE_CONFIGS: """
        throttle_time_ms int32
        results []
          error_code int16
          error_message string?
          resource_type int8
          resource_name string
          configs []
            name string
            value string?
            read_only bool
            config_source int8 1+ = -1
            is_default bool 0
            is_sensitive bool
            synonyms [] 1+
              name string 1+
              value string? 1+
              source int8 1+
            config_type int8 3+
            documentation string? 3+
    """,
    ApiKey.ALTER_CONFIGS: """
        throttle_time_ms int32
        responses []
          error_code int16
          error_message string?
          resource_type int8
          resource_name string
    """,
    ApiKey.ALTER_REPLICA_LOG_DIRS: """
        throttle_time_ms int32
        results []
          topic_name string
          partitions []
            partition_index int32
            error_code int16
    """,
    ApiKey.DESCRIBE_LOG_DIRS: """
        throttle_time_ms int32
        error_code int16 3+
        results []
          error_code int16
          log_dir string
          topics []
            name string
            partitions []
              partition_index int32
              partition_size int64
              offset_lag int64
              is_future_key bool
          total_bytes int64 4+ = -1
          usable_bytes int64 4+ = -1
    """,
    ApiKey.CREATE_PARTITIONS: """
        throttle_time_ms int32
        results []
          name string
          error_code int16
          error_message string?
    """,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: """
        throttle_time_ms int32
        responses []
          error_code int16
          error_message string?
          resource_type int8
          resource_name string
    """,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: """
        throttle_time_ms int32
        error_code int16
        error_message string?
        entries []?
          entity []
            entity_type string
            entity_name string?
          values []
            key string
            value float64
    """,
    ApiKey.ALTER_CLIENT_QUOTAS: """
        throttle_time_ms int32
        entries []
          error_code int16
          error_message string?
          entity []
            entity_type string
            entity_name string?
    """,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: """
        throttle_time_ms int32
        topics []
          error_code int16
          name string?
          topic_id uuid
          is_internal bool
          partitions []
            error_code int16
            partition_index int32
            leader_id int32
            leader_epoch int32 = -1
            replica_nodes []int32
            isr_nodes []int32
            eligible_leader_replicas []int32?
            last_known_elr []int32?
            offline_replicas []int32
          topic_authorized_operations int32 = -2147483648
        next_cursor {}?
          topic_name string
          partition_index int32
    """,
}
