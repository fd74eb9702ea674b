"""The answers that Duramen writes by hand, as tables. From the protocol guide."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from duramen.codec.kafka.messages import RESPONSES
from duramen.codec.kafka.schema import Schema
from duramen.codec.kafka.versions import APIS, ApiKey

__all__ = ["ANSWERS"]

_PRODUCE: Final = """
    responses []
      name string 0-12
      topic_id uuid 13+
      partitions []
        index int32
        error_code int16
        base_offset int64
        log_append_time_ms int64 2+
        log_start_offset int64 5+
        record_errors [] 8+
          batch_index int32
          batch_index_error_message string?
        error_message string? 8+
        current_leader {} 10+ tag 0
          leader_id int32
          leader_epoch int32
    throttle_time_ms int32 1+
    node_endpoints [] 10+ tag 0
      node_id int32
      host string
      port int32
      rack string?
"""

_FETCH: Final = """
    throttle_time_ms int32
    error_code int16 7+
    session_id int32 7+
    responses []
      topic string 0-12
      topic_id uuid 13+
      partitions []
        partition_index int32
        error_code int16
        high_watermark int64
        last_stable_offset int64
        log_start_offset int64 5+
        aborted_transactions []?
          producer_id int64
          first_offset int64
        preferred_read_replica int32 11+
        records records?
        diverging_epoch {} 12+ tag 0
          epoch int32
          end_offset int64
        current_leader {} 12+ tag 1
          leader_id int32
          leader_epoch int32
        snapshot_id {} 12+ tag 2
          end_offset int64
          epoch int32
    node_endpoints [] 16+ tag 0
      node_id int32
      host string
      port int32
      rack string?
"""

ANSWERS: Final[Mapping[int, Schema]] = MappingProxyType(
    {
        ApiKey.PRODUCE: Schema("PRODUCE response", APIS[ApiKey.PRODUCE].flexible, _PRODUCE),
        ApiKey.FETCH: Schema("FETCH response", APIS[ApiKey.FETCH].flexible, _FETCH),
        **RESPONSES,
    }
)
"""The answer of every API."""
