"""Requests that Duramen reads by hand, as tables, so that they can be made like all others. From the protocol guide."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from duramen.codec.kafka.messages import REQUESTS
from duramen.codec.kafka.schema import Schema
from duramen.codec.kafka.versions import APIS, ApiKey

__all__ = ["SCHEMAS"]

_PRODUCE: Final = """
    transactional_id string? 3+
    acks int16
    timeout_ms int32
    topics []
      name string 0-12
      topic_id uuid 13+
      partitions []
        index int32
        records records?
"""

_FETCH: Final = """
    cluster_id string? 12+ tag 0
    replica_id int32 0-14 = -1
    replica_state {} 15+ tag 1
      replica_id int32 = -1
      replica_epoch int64 = -1
    max_wait_ms int32
    min_bytes int32
    max_bytes int32
    isolation_level int8
    session_id int32 7+
    session_epoch int32 7+ = -1
    topics []
      topic string 0-12
      topic_id uuid 13+
      partitions []
        partition int32
        current_leader_epoch int32 9+ = -1
        fetch_offset int64
        last_fetched_epoch int32 12+ = -1
        log_start_offset int64 5+ = -1
        partition_max_bytes int32
        replica_directory_id uuid 17+ tag 0
    forgotten_topics_data [] 7+
      topic string 0-12
      topic_id uuid 13+
      partitions []int32
    rack_id string 11+
"""

SCHEMAS: Final[Mapping[int, Schema]] = MappingProxyType(
    {
        ApiKey.PRODUCE: Schema("PRODUCE request", APIS[ApiKey.PRODUCE].flexible, _PRODUCE),
        ApiKey.FETCH: Schema("FETCH request", APIS[ApiKey.FETCH].flexible, _FETCH),
        **REQUESTS,
    }
)
"""The request of every API."""
