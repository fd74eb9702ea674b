"""A request that names one thing again and again does not have it said so often that the node's memory goes."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from tests.doors.kafka.asking import Asking
from tests.hostile.process import resident_bytes

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.units import MIB
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

_TIMES: Final = 20_000
_ANSWER_BYTES: Final = 3 * MIB  # a quarter of what requests may hold with the least memory there is
_SLACK_BYTES: Final = 40 * MIB  # the request's own elements, and the encoded answer beside what it is made of


@pytest.fixture
def asking(new_node: Callable[..., NodeProcess]) -> Iterator[tuple[NodeProcess, Asking]]:
    """A node with the least memory there is, a stream of 20 partitions, and a group that has committed long notes."""
    node = new_node({"memory.limit.bytes": 128 * MIB, "offsets.topic.num.partitions": 1}).start()
    with Asking(node) as asking:
        topic = {"name": "s", "num_partitions": 20, "replication_factor": 1}
        asking.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 5000})
        asking.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
        notes = [
            {"partition_index": index, "committed_offset": index, "committed_metadata": "n" * 4096}
            for index in range(20)
        ]
        committed = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
        asking.ask(ApiKey.OFFSET_COMMIT, 8, committed | {"topics": [{"name": "s", "partitions": notes}]})
        yield node, asking
    assert node.stop() == 0
    assert "Traceback" not in node.log_path.read_text()


def _groups(times: int) -> Message:
    # What is there byte for byte again is answered once: each names another member.
    return {
        "groups": [{"group_id": "g", "topics": None, "member_id": f"m{at}", "member_epoch": -1} for at in range(times)]
    }


def _configs(times: int) -> Message:
    resources = [
        {"resource_type": 4, "resource_name": "1", "configuration_keys": [*BROKER, f"none-{at}"]}
        for at in range(times // 50)
    ]
    return {"resources": resources, "include_synonyms": True, "include_documentation": True}


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("api", "version", "wish", "inside"),
    [
        (ApiKey.OFFSET_FETCH, 9, _groups, "groups"),
        (ApiKey.DESCRIBE_CONFIGS, 4, _configs, "results"),
    ],
)
def test_what_is_named_again_and_again_is_said_as_often_as_there_is_room(
    asking: tuple[NodeProcess, Asking], api: ApiKey, version: int, wish: Callable[[int], Message], inside: str
) -> None:
    node, connection = asking
    before = resident_bytes(node.pid)
    answers: list[dict[str, Any]] = connection.ask(api, version, wish(_TIMES))[inside]
    codes = [answer["error_code"] for answer in answers]
    whole = codes.index(ErrorCode.INVALID_REQUEST)
    assert whole > 5
    assert set(codes[:whole]) == {ErrorCode.NONE}
    assert set(codes[whole:]) == {ErrorCode.INVALID_REQUEST}
    assert resident_bytes(node.pid) - before < _ANSWER_BYTES + _SLACK_BYTES
    # What is asked for as everybody asks is said as before.
    (once,) = connection.ask(api, version, wish(100))[inside][:1]
    assert once["error_code"] == ErrorCode.NONE
    assert once["topics" if inside == "groups" else "configs"]


@pytest.mark.variants(1)
@pytest.mark.parametrize("version", [1, 2, 7])
def test_partitions_that_are_named_again_and_again(asking: tuple[NodeProcess, Asking], version: int) -> None:
    _, connection = asking
    wish: dict[str, Any] = {
        "group_id": "g",
        "topics": [{"name": "s", "partition_indexes": [at, 0]} for at in range(_TIMES)],
    }
    if version == 1:
        # There is no place for an error in the answer: the connection is closed.
        with pytest.raises((ConnectionError, AssertionError, IndexError)):
            connection.ask(ApiKey.OFFSET_FETCH, version, wish)
        return
    assert connection.ask(ApiKey.OFFSET_FETCH, version, wish)["error_code"] == ErrorCode.INVALID_REQUEST
    once = connection.ask(ApiKey.OFFSET_FETCH, version, wish | {"topics": None})
    assert len(once["topics"][0]["partitions"]) == 20


def test_transactions_and_producers_have_room_for_what_is_asked_once(asking: tuple[NodeProcess, Asking]) -> None:
    _, connection = asking
    found = connection.ask(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [{"name": "s", "partition_indexes": [0, 1, 99]}]})
    codes = [one["error_code"] for one in found["topics"][0]["partitions"]]
    assert codes == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    unknown = connection.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["x"]})
    assert unknown["transaction_states"][0]["error_code"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
