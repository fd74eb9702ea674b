"""Producers' ids and transactions. Data only; the notation is that of `schema`.

The fields of DescribeProducers with tag 10000 are ours: `marked_from` asks for the markers of each partition from that
offset on, `marked` has them and what is open. Brokers of others do not know the tag and leave it out.
"""

from typing import Final

from duramen.codec.kafka.versions import ApiKey

__all__ = ["REQUESTS", "RESPONSES"]

REQUESTS: Final = {
    ApiKey.INIT_PRODUCER_ID: """
        transactional_id string?
        transaction_timeout_ms int32
        producer_id int64 3+ = -1
        producer_epoch int16 3+ = -1
    """,
    ApiKey.ADD_PARTITIONS_TO_TXN: """
        v3_and_below_transactional_id string
        v3_and_below_producer_id int64
        v3_and_below_producer_epoch int16
        v3_and_below_topics []
          name string
          partitions []int32
    """,
    ApiKey.ADD_OFFSETS_TO_TXN: """
        transactional_id string
        producer_id int64
        producer_epoch int16
        group_id string
    """,
    ApiKey.END_TXN: """
        transactional_id string
        producer_id int64
        producer_epoch int16
        committed bool
    """,
    ApiKey.TXN_OFFSET_COMMIT: """
        transactional_id string
        group_id string
        producer_id int64
        producer_epoch int16
        generation_id int32 3+ = -1
        member_id string 3+
        group_instance_id string? 3+
        topics []
          name string
          partitions []
            partition_index int32
            committed_offset int64
            committed_leader_epoch int32 2+ = -1
            committed_metadata string?
    """,
    ApiKey.DESCRIBE_PRODUCERS: """
        topics [] once
          name string
          partition_indexes []int32
          marked_from []int64 tag 10000
    """,
    ApiKey.DESCRIBE_TRANSACTIONS: """
        transactional_ids []string once
    """,
    ApiKey.LIST_TRANSACTIONS: """
        state_filters []string
        producer_id_filters []int64
        duration_filter int64 1+ = -1
    """,
}

RESPONSES: Final = {
    ApiKey.INIT_PRODUCER_ID: """
        throttle_time_ms int32
        error_code int16
        producer_id int64 = -1
        producer_epoch int16
    """,
    ApiKey.ADD_PARTITIONS_TO_TXN: """
        throttle_time_ms int32
        results_by_topic_v3_and_below []
          name string
          results_by_partition []
            partition_index int32
            partition_error_code int16
    """,
    ApiKey.ADD_OFFSETS_TO_TXN: """
        throttle_time_ms int32
        error_code int16
    """,
    ApiKey.END_TXN: """
        throttle_time_ms int32
        error_code int16
        producer_id int64 5+ = -1
        producer_epoch int16 5+ = -1
    """,
    ApiKey.TXN_OFFSET_COMMIT: """
        throttle_time_ms int32
        topics []
          name string
          partitions []
            partition_index int32
            error_code int16
    """,
    ApiKey.DESCRIBE_PRODUCERS: """
        throttle_time_ms int32
        topics []
          name string
          partitions []
            partition_index int32
            error_code int16
            error_message string?
            active_producers []
              producer_id int64
              producer_epoch int32
              last_sequence int32 = -1
              last_timestamp int64 = -1
              coordinator_epoch int32
              current_txn_start_offset int64 = -1
            marked {}? tag 10000
              high_watermark int64
              last_stable_offset int64
              next_offset int64
              open []
                producer_id int64
                first_offset int64
              ended []
                offset int64
                producer_id int64
                first_offset int64
                sequence int64
                commit bool
    """,
    ApiKey.DESCRIBE_TRANSACTIONS: """
        throttle_time_ms int32
        transaction_states []
          error_code int16
          transactional_id string
          transaction_state string
          transaction_timeout_ms int32
          transaction_start_time_ms int64
          producer_id int64
          producer_epoch int16
          topics []
            topic string
            partitions []int32
    """,
    ApiKey.LIST_TRANSACTIONS: """
        throttle_time_ms int32
        error_code int16
        unknown_state_filters []string
        transaction_states []
          transactional_id string
          producer_id int64
          transaction_state string
    """,
}
