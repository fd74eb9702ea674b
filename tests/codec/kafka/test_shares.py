"""The messages of share groups, which kafka-python does not know, against kio; and with every field left out."""

from typing import Any
from uuid import UUID

import pytest
from tests.codec.kafka.oracles import through_kio

from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.versions import APIS, ApiKey

TOPIC = UUID(int=7)
ACKNOWLEDGED = {"first_offset": 3, "last_offset": 1 << 40, "acknowledge_types": [1, 2, 3, 0]}
LEADER = {"leader_id": 4, "leader_epoch": 5}
ENDPOINTS = [
    {"node_id": 1, "host": "h", "port": 9092, "rack": None},
    {"node_id": 2, "host": "", "port": 1, "rack": "r"},
]

MESSAGES: dict[tuple[ApiKey, str], dict[str, Any]] = {
    (ApiKey.SHARE_GROUP_HEARTBEAT, "request"): {
        "group_id": "g", "member_id": "m", "member_epoch": -1, "rack_id": "r", "subscribed_topic_names": ["a", "b"],
    },
    (ApiKey.SHARE_GROUP_HEARTBEAT, "response"): {
        "throttle_time_ms": 1, "error_code": 110, "error_message": "no", "member_id": "m", "member_epoch": 4,
        "heartbeat_interval_ms": 5000,
        "assignment": {"topic_partitions": [{"topic_id": TOPIC, "partitions": [0, 2]}]},
    },
    (ApiKey.SHARE_GROUP_DESCRIBE, "request"): {"group_ids": ["g", "h"], "include_authorized_operations": True},
    (ApiKey.SHARE_GROUP_DESCRIBE, "response"): {
        "throttle_time_ms": 1,
        "groups": [{
            "error_code": 69, "error_message": None, "group_id": "g", "group_state": "Stable", "group_epoch": 3,
            "assignment_epoch": 3, "assignor_name": "simple",
            "members": [{
                "member_id": "m", "rack_id": None, "member_epoch": 3, "client_id": "c", "client_host": "/h",
                "subscribed_topic_names": ["t"],
                "assignment": {"topic_partitions": [{"topic_id": TOPIC, "topic_name": "t", "partitions": [1]}]},
            }],
            "authorized_operations": 3,
        }],
    },
    (ApiKey.SHARE_FETCH, "request"): {
        "group_id": "g", "member_id": "m", "share_session_epoch": 2, "max_wait_ms": 500, "min_bytes": 1,
        "max_bytes": 1 << 20, "max_records": 500, "batch_size": 400, "share_acquire_mode": 1, "is_renew_ack": True,
        "topics": [{
            "topic_id": TOPIC, "partitions": [{"partition_index": 3, "acknowledgement_batches": [ACKNOWLEDGED]}],
        }],
        "forgotten_topics_data": [{"topic_id": TOPIC, "partitions": [1, 2]}],
    },
    (ApiKey.SHARE_FETCH, "response"): {
        "throttle_time_ms": 1, "error_code": 122, "error_message": "no", "acquisition_lock_timeout_ms": 30_000,
        "responses": [{
            "topic_id": TOPIC,
            "partitions": [{
                "partition_index": 1, "error_code": 3, "error_message": "e", "acknowledge_error_code": 121,
                "acknowledge_error_message": "f", "current_leader": LEADER, "records": b"bytes",
                "acquired_records": [{"first_offset": 1, "last_offset": 9, "delivery_count": 2}],
            }],
        }],
        "node_endpoints": ENDPOINTS,
    },
    (ApiKey.SHARE_ACKNOWLEDGE, "request"): {
        "group_id": "g", "member_id": "m", "share_session_epoch": 2, "is_renew_ack": True,
        "topics": [{
            "topic_id": TOPIC, "partitions": [{"partition_index": 3, "acknowledgement_batches": [ACKNOWLEDGED]}],
        }],
    },
    (ApiKey.SHARE_ACKNOWLEDGE, "response"): {
        "throttle_time_ms": 1, "error_code": 123, "error_message": "no", "acquisition_lock_timeout_ms": 30_000,
        "responses": [{
            "topic_id": TOPIC,
            "partitions": [
                {"partition_index": 1, "error_code": 121, "error_message": "e", "current_leader": LEADER}
            ],
        }],
        "node_endpoints": ENDPOINTS,
    },
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "request"): {
        "groups": [
            {"group_id": "g", "topics": [{"topic_name": "t", "partitions": [0, 1]}]}, {"group_id": "h", "topics": None},
        ],
    },
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "response"): {
        "throttle_time_ms": 1,
        "groups": [{
            "group_id": "g",
            "topics": [{
                "topic_name": "t", "topic_id": TOPIC,
                "partitions": [{
                    "partition_index": 1, "start_offset": 5, "leader_epoch": 2, "lag": 8, "error_code": 3,
                    "error_message": "e",
                }],
            }],
            "error_code": 69, "error_message": None,
        }],
    },
    (ApiKey.ALTER_SHARE_GROUP_OFFSETS, "request"): {
        "group_id": "g",
        "topics": [{"topic_name": "t", "partitions": [{"partition_index": 1, "start_offset": 9}]}],
    },
    (ApiKey.ALTER_SHARE_GROUP_OFFSETS, "response"): {
        "throttle_time_ms": 1, "error_code": 68, "error_message": "e",
        "responses": [{
            "topic_name": "t", "topic_id": TOPIC,
            "partitions": [{"partition_index": 1, "error_code": 3, "error_message": None}],
        }],
    },
    (ApiKey.DELETE_SHARE_GROUP_OFFSETS, "request"): {"group_id": "g", "topics": [{"topic_name": "t"}]},
    (ApiKey.DELETE_SHARE_GROUP_OFFSETS, "response"): {
        "throttle_time_ms": 1, "error_code": 0, "error_message": None,
        "responses": [{"topic_name": "t", "topic_id": TOPIC, "error_code": 3, "error_message": "e"}],
    },
}  # fmt: skip
VERSIONS = [
    (key, kind, version) for key, kind in MESSAGES for version in range(APIS[key].low, APIS[key].high + 1)
]  # fmt: skip
EVERY = pytest.mark.parametrize(
    ("key", "kind", "version"), VERSIONS, ids=[f"{key.name} {kind} {v}" for key, kind, v in VERSIONS]
)


@EVERY
def test_round_trip_and_both_ways_with_another_implementation(key: ApiKey, kind: str, version: int) -> None:
    table = (REQUESTS if kind == "request" else RESPONSES)[key]
    message = MESSAGES[key, kind]
    encoded = table.encode(version, message)
    decoded = table.decode(version, encoded)
    if version == APIS[key].high:
        assert decoded == message
    assert table.encode(version, decoded) == encoded
    assert through_kio(key, kind, version, encoded) == encoded


@EVERY
def test_fields_left_out_have_their_defaults(key: ApiKey, kind: str, version: int) -> None:
    table = (REQUESTS if kind == "request" else RESPONSES)[key]
    encoded = table.encode(version, {})
    assert through_kio(key, kind, version, encoded) == encoded
