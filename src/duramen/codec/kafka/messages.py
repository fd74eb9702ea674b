"""The messages of every API but Produce and Fetch, as tables; the notation is that of `schema`.

Only what the versions in `versions` need is here.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from duramen.codec.kafka.schema import Schema
from duramen.codec.kafka.versions import APIS, ApiKey

__all__ = ["REQUESTS", "RESPONSES"]

_REQUEST_TABLES: Final = {
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
        timeout_ms int32 10+
    """,
    ApiKey.METADATA: """
        topics []?
          topic_id uuid 10+
          name string?
        allow_auto_topic_creation bool 4+ = true
        include_cluster_authorized_operations bool 8-10
        include_topic_authorized_operations bool 8+
    """,
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
        groups [] 8+
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
        coordinator_keys []string 4+
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
        groups []string
        include_authorized_operations bool 3+
    """,
    ApiKey.LIST_GROUPS: """
        states_filter []string 4+
        types_filter []string 5+
    """,
    ApiKey.API_VERSIONS: """
        client_software_name string 3+
        client_software_version string 3+
    """,
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
    ApiKey.INIT_PRODUCER_ID: """
        transactional_id string?
        transaction_timeout_ms int32
        producer_id int64 3+ = -1
        producer_epoch int16 3+ = -1
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
    ApiKey.DESCRIBE_CONFIGS: """
        resources []
          resource_type int8
          resource_name string
          configuration_keys []string?
        include_synonyms bool 1+
        include_documentation bool 3+
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
    ApiKey.DELETE_GROUPS: """
        groups_names []string
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
    ApiKey.DESCRIBE_CLUSTER: """
        include_cluster_authorized_operations bool
        endpoint_type int8 1+ = 1
    """,
}

_RESPONSE_TABLES: Final = {
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
    ApiKey.INIT_PRODUCER_ID: """
        throttle_time_ms int32
        error_code int16
        producer_id int64 = -1
        producer_epoch int16
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
    ApiKey.CREATE_PARTITIONS: """
        throttle_time_ms int32
        results []
          name string
          error_code int16
          error_message string?
    """,
    ApiKey.DELETE_GROUPS: """
        throttle_time_ms int32
        results []
          group_id string
          error_code int16
    """,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: """
        throttle_time_ms int32
        responses []
          error_code int16
          error_message string?
          resource_type int8
          resource_name string
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
        cluster_authorized_operations int32 = -2147483648
    """,
}


def _schemas(kind: str, tables: Mapping[ApiKey, str]) -> Mapping[int, Schema]:
    return MappingProxyType(
        {key: Schema(f"{key.name} {kind}", APIS[key].flexible, table) for key, table in tables.items()}
    )


REQUESTS: Final = _schemas("request", _REQUEST_TABLES)
RESPONSES: Final = _schemas("response", _RESPONSE_TABLES)
