"""The messages of the consumer protocol, which kafka-python does not know, against kio; with and without fields."""

from typing import Any
from uuid import UUID

import pytest
from tests.codec.kafka.oracles import through_kio

from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.versions import APIS, ApiKey

TOPIC = UUID(int=7)
PLACES = [{"topic_id": TOPIC, "partitions": [0, 2]}]
NAMED = {"topic_partitions": [{"topic_id": TOPIC, "topic_name": "t", "partitions": [0, 2]}]}

MESSAGES: dict[tuple[ApiKey, str], list[dict[str, Any]]] = {
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "request"): [
        {"group_id": "g", "member_id": "m", "member_epoch": -2},
        {
            "group_id": "g", "member_id": "m", "member_epoch": 0, "instance_id": "i", "rack_id": "r",
            "rebalance_timeout_ms": 5, "subscribed_topic_names": ["a", "b"], "server_assignor": "range",
            "topic_partitions": PLACES,
        },
        {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": [], "topic_partitions": []},
    ],
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "response"): [
        {"error_code": 110, "error_message": "no"},
        {
            "throttle_time_ms": 1, "member_id": "m", "member_epoch": 4, "heartbeat_interval_ms": 5000,
            "assignment": {"topic_partitions": PLACES},
        },
    ],
    (ApiKey.CONSUMER_GROUP_DESCRIBE, "request"): [{"group_ids": ["g", "h"], "include_authorized_operations": True}],
    (ApiKey.CONSUMER_GROUP_DESCRIBE, "response"): [
        {"groups": [{"error_code": 69, "error_message": "no", "group_id": "g"}]},
        {
            "throttle_time_ms": 1,
            "groups": [{
                "group_id": "g", "group_state": "Stable", "group_epoch": 3, "assignment_epoch": 3,
                "assignor_name": "uniform", "authorized_operations": 3,
                "members": [
                    {"member_id": "m", "member_epoch": 3, "assignment": NAMED, "target_assignment": NAMED},
                    {
                        "member_id": "n", "instance_id": "i", "rack_id": "r", "member_epoch": 3, "client_id": "c",
                        "client_host": "/h", "subscribed_topic_names": ["t"], "subscribed_topic_regex": "t.*",
                        "assignment": {"topic_partitions": []}, "target_assignment": NAMED,
                    },
                ],
            }],
        },
    ],
}  # fmt: skip
CASES = [
    (key, kind, version, message)
    for (key, kind), messages in MESSAGES.items()
    for version in range(APIS[key].low, APIS[key].high + 1)
    for message in messages
]


@pytest.mark.parametrize(("key", "kind", "version", "message"), CASES)
def test_another_implementation_reads_them_and_writes_the_same(
    key: ApiKey, kind: str, version: int, message: dict[str, Any]
) -> None:
    table = (REQUESTS if kind == "request" else RESPONSES)[key]
    encoded = table.encode(version, message)
    assert through_kio(key, kind, version, encoded) == encoded
    decoded = table.decode(version, encoded)
    assert table.encode(version, decoded) == encoded
    assert {name: decoded[name] for name in message if "groups" not in name} == {
        name: value for name, value in message.items() if "groups" not in name
    }
