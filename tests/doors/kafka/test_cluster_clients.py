"""A node alone, and unmodified admin clients that take it for a cluster; replicas and brokers that take it for one."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.clients import until
from tests.doors.kafka.asking import Asking
from tests.untyped import untyped

from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

_S = 60


@pytest.fixture
def python_admin(node: NodeProcess) -> Iterator[Any]:
    """kafka-python's admin client."""
    client = untyped("kafka.admin").KafkaAdminClient(bootstrap_servers=node.kafka)
    yield client
    client.close()


@pytest.fixture
def stream(asking: Asking, stream_name: str) -> str:
    """A stream of two partitions."""
    topic = {"name": stream_name, "num_partitions": 2, "replication_factor": 1}
    asking.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 5000})
    return stream_name


@pytest.fixture
def asking(node: NodeProcess) -> Iterator[Asking]:
    """A raw connection."""
    with Asking(node) as connection:
        yield connection


def test_confluent_kafka_elects_nobody_else(admin: AdminClient, stream: str) -> None:
    for kind in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        found = admin.elect_leaders(kind, [TopicPartition(stream, 0), TopicPartition(stream, 7)]).result(_S)
        codes = {place.partition: error.code() for place, error in found.items()}
        assert codes == {0: ErrorCode.ELECTION_NOT_NEEDED, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert admin.elect_leaders(kind).result(_S) == {}


def test_confluent_kafka_describes_a_cluster_of_one(admin: AdminClient) -> None:
    found = admin.describe_cluster().result(_S)
    assert [node.id for node in found.nodes] == [found.controller.id]


def test_kafka_python_sees_a_quorum_of_one(python_admin: Any, asking: Asking, stream: str) -> None:
    (node_id,) = [node["broker_id"] for node in asking.ask(ApiKey.DESCRIBE_CLUSTER, 2, {})["brokers"]]
    quorum = python_admin.describe_metadata_quorum()
    ((partition,),) = [topic["partitions"] for topic in quorum["topics"]]
    assert partition["leader_id"] == node_id
    assert [row["replica_id"] for row in partition["current_voters"]] == [node_id]
    assert partition["current_voters"][0]["log_end_offset"] == partition["high_watermark"] > 0
    assert python_admin.list_partition_reassignments() == {}
    assert stream


def test_an_assignment_stays_what_it_can_only_be(asking: Asking, stream: str) -> None:
    (node_id,) = [node["broker_id"] for node in asking.ask(ApiKey.DESCRIBE_CLUSTER, 2, {})["brokers"]]
    wanted = [[node_id], [node_id, node_id + 1], [], None]
    partitions = [{"partition_index": 0, "replicas": replicas} for replicas in wanted]
    wish = {"topics": [{"name": stream, "partitions": partitions}]}
    (topic,) = asking.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, wish)["responses"]
    assert [part["error_code"] for part in topic["partitions"]] == [
        ErrorCode.NONE, ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ]  # fmt: skip
    left = asking.ask(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": node_id + 1})
    assert left["error_code"] == ErrorCode.BROKER_ID_NOT_REGISTERED
    stays = asking.ask(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": node_id})
    assert (stays["error_code"], "is live" in stays["error_message"]) == (ErrorCode.INVALID_REQUEST, True)


@pytest.mark.parametrize("version", [4, 11, 12, 14, 15, 16])
def test_a_replica_is_told_where_replicas_fetch(node: NodeProcess, version: int) -> None:
    head = (2).to_bytes(4, "big") if version < 15 else b""
    body = head + bytes(12) + b"\0" + (bytes(8) if version >= 7 else b"")
    body += b"\x01\x01\x01" if version >= 12 else bytes(4 if version < 7 else 8) + (b"\0\0" if version >= 11 else b"")
    if version >= 12:
        state = b"\x01\x0c" + (2).to_bytes(4, "big") + bytes(8)
        body += b"\x01" + state if version >= 15 else b"\0"
    with Asking(node) as connection:
        connection.send(ApiKey.FETCH, version, body)
        assert connection.closed()
    said = "it fetches as the replica of node 2: nodes fetch from each other through --cluster-listen, never here"
    until(lambda: said in node.log_path.read_text())


@pytest.mark.parametrize(("number", "name"), [(4, "LeaderAndIsr"), (52, "Vote"), (56, "AlterPartition")])
def test_brokers_among_themselves_are_told_where_they_speak(node: NodeProcess, number: int, name: str) -> None:
    with Asking(node) as connection:
        connection.send_raw(number, 0, b"")
        assert connection.closed()
    until(lambda: f"{name} is for brokers among themselves" in node.log_path.read_text())


def test_a_consumer_is_no_replica(node: NodeProcess) -> None:
    body = bytes(12) + b"\0" + bytes(8) + b"\x01\x01\x01"
    for tag in (b"\x01\x01\x0c" + (-1).to_bytes(4, "big", signed=True) + bytes(8), b"\0"):
        with Asking(node) as connection:
            connection.send(ApiKey.FETCH, 16, body + tag)
            assert len(connection.frame()) > 0


def test_an_election_that_cannot_be_is_an_error(admin: AdminClient, asking: Asking, stream: str) -> None:
    answer = asking.ask(ApiKey.ELECT_LEADERS, 1, {"election_type": 9, "topic_partitions": None})
    assert answer["error_code"] == ErrorCode.INVALID_REQUEST
    with pytest.raises((KafkaException, ValueError, TypeError)):
        admin.elect_leaders(7, [TopicPartition(stream, 0)])  # type: ignore[arg-type]
