"""The messages about voters and nodes, which kafka-python does not know, against kio; with and without fields."""

from typing import Any
from uuid import UUID

import pytest
from tests.codec.kafka.oracles import through_kio

from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.versions import APIS, ApiKey

DIRECTORY = UUID(int=7)
ANSWERS: list[dict[str, Any]] = [{}, {"throttle_time_ms": 1, "error_code": 127, "error_message": "no"}]
VOTER = {"cluster_id": "c", "voter_id": 3, "voter_directory_id": DIRECTORY}

MESSAGES: dict[tuple[ApiKey, str], list[dict[str, Any]]] = {
    (ApiKey.UNREGISTER_BROKER, "request"): [{"broker_id": 4}],
    (ApiKey.ADD_RAFT_VOTER, "request"): [
        VOTER | {"timeout_ms": 9, "listeners": [{"name": "cluster", "host": "h", "port": 65_535}]},
        {"cluster_id": None, "voter_id": -1, "listeners": []},
    ],
    (ApiKey.REMOVE_RAFT_VOTER, "request"): [VOTER, {"cluster_id": None, "voter_id": 0}],
    (ApiKey.UNREGISTER_BROKER, "response"): ANSWERS,
    (ApiKey.ADD_RAFT_VOTER, "response"): ANSWERS,
    (ApiKey.REMOVE_RAFT_VOTER, "response"): ANSWERS,
}
CASES = [
    (key, kind, version, message)
    for (key, kind), messages in MESSAGES.items()
    for version in range(APIS[key].low, APIS[key].high + 1)
    for message in messages
]


@pytest.mark.parametrize(("key", "kind", "version", "message"), CASES)
def test_another_implementation_reads_and_writes_the_same(
    key: ApiKey, kind: str, version: int, message: dict[str, Any]
) -> None:
    table = (REQUESTS if kind == "request" else RESPONSES)[key]
    encoded = table.encode(version, message)
    assert through_kio(key, kind, version, encoded) == encoded
    assert {name: table.decode(version, encoded)[name] for name in message} == message


def test_since_version_1_a_voter_may_want_its_answer_before_it_is_committed() -> None:
    table = REQUESTS[ApiKey.ADD_RAFT_VOTER]
    encoded = table.encode(1, VOTER | {"ack_when_committed": False})
    assert through_kio(ApiKey.ADD_RAFT_VOTER, "request", 1, encoded) == encoded
    assert table.decode(1, encoded)["ack_when_committed"] is False
    assert table.decode(0, table.encode(0, VOTER))["ack_when_committed"] is True
