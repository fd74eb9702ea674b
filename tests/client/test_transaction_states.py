"""Asking which transactions ended where: real producers, pieces, wrong wishes, a broker that knows nothing of it."""

import pytest
from confluent_kafka import Producer
from tests.raw import connect

from duramen.base.errors import StreamNotFound, UnsupportedFeature
from duramen.client import BrokerCluster, TopicPartition
from duramen.client.connection import BrokerConnection
from duramen.client.transaction_states import find_marked
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

_S = 60.0


def transactional(node: NodeProcess, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": node.kafka, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(_S)
    return producer


def write(producer: Producer, stream: str, *partitions: int) -> None:
    for partition in partitions:
        producer.produce(stream, b"v", partition=partition)
        producer.flush(_S)


def test_markers_and_what_is_open(node: NodeProcess, stream_name: str) -> None:
    with BrokerCluster(node.kafka) as cluster:
        connection = connect(node)
        connection.request(ApiKey.CREATE_TOPICS, _create(stream_name, 2))
        one, other = transactional(node, f"{stream_name}-1"), transactional(node, f"{stream_name}-2")
        ats = [TopicPartition(stream_name, 0), TopicPartition(stream_name, 1)]
        assert [marked.ended for marked in find_marked(cluster, dict.fromkeys(ats, 0)).values()] == [[], []]
        one.begin_transaction()
        other.begin_transaction()
        write(one, stream_name, 0)  # offset 0 of partition 0
        write(other, stream_name, 0, 1)  # 1 of partition 0, 0 of partition 1
        open_ = find_marked(cluster, dict.fromkeys(ats, 0))
        assert [first for _, first in open_[ats[0]].open] == [0, 1]
        assert [first for _, first in open_[ats[1]].open] == [0]
        other.commit_transaction(_S)
        one.abort_transaction(_S)
        found = find_marked(cluster, dict.fromkeys(ats, 0))
        first, second = found[ats[0]].ended
        (third,) = found[ats[1]].ended
        assert (first.offset, first.first_offset, first.commit) == (2, 1, True)
        assert (second.offset, second.first_offset, second.commit) == (3, 0, False)
        assert third == first._replace(offset=1, first_offset=0)
        assert first.sequence < second.sequence
        assert not found[ats[0]].open
        assert [one.offset for one in find_marked(cluster, {ats[0]: 3})[ats[0]].ended] == [3]
        assert find_marked(cluster, {ats[0]: 1 << 62, ats[1]: -7})[ats[0]].ended == []
        with pytest.raises(StreamNotFound):
            find_marked(cluster, {TopicPartition(stream_name, 9): 0})
        connection.close()


def test_many_markers_come_in_pieces(node: NodeProcess, stream_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = transactional(node, stream_name)
    for _ in range(10):
        producer.begin_transaction()
        write(producer, stream_name, 0)
        producer.commit_transaction(_S)
    asked: list[int] = []
    request = BrokerConnection.request

    def counting(self: BrokerConnection, api: ApiKey, message: Message, *, wait_s: float = 0.0) -> Message:
        answer = request(self, api, message, wait_s=wait_s)
        if api is ApiKey.DESCRIBE_PRODUCERS:
            asked.append(len(answer["topics"][0]["partitions"][0]["marked"]["ended"]))
        return answer

    monkeypatch.setattr(BrokerConnection, "request", counting)
    wish = {"topics": [{"name": stream_name, "partition_indexes": [0] * 10_000, "marked_from": [0] * 10_000}]}
    connection = connect(node)
    pieces = connection.request(ApiKey.DESCRIBE_PRODUCERS, wish)["topics"][0]["partitions"]
    assert [(len(one["marked"]["ended"]), one["marked"]["next_offset"]) for one in pieces] == [(2, 4)] * 10_000
    connection.close()
    with BrokerCluster(node.kafka) as cluster:
        (marked,) = find_marked(cluster, {TopicPartition(stream_name, 0): 0}).values()
    assert [one.offset for one in marked.ended] == list(range(1, 20, 2))
    assert [one.first_offset for one in marked.ended] == list(range(0, 20, 2))
    assert len({one.sequence for one in marked.ended}) == 10


def test_an_offset_is_said_for_each_partition(node: NodeProcess, stream_name: str) -> None:
    connection = connect(node)
    connection.request(ApiKey.CREATE_TOPICS, _create(stream_name, 1))
    wish = {"topics": [{"name": stream_name, "partition_indexes": [0, 0], "marked_from": [0]}]}
    one, other = connection.request(ApiKey.DESCRIBE_PRODUCERS, wish)["topics"][0]["partitions"]
    assert one["marked"]["ended"] == []
    assert other["error_code"] == ErrorCode.INVALID_REQUEST
    connection.close()


def test_a_broker_that_does_not_know_of_it(
    node: NodeProcess, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = connect(node)
    connection.request(ApiKey.CREATE_TOPICS, _create(stream_name, 1))
    connection.close()
    request = BrokerConnection.request

    def foreign(self: BrokerConnection, api: ApiKey, message: Message, *, wait_s: float = 0.0) -> Message:
        if api is ApiKey.DESCRIBE_PRODUCERS:
            message = {"topics": [{**topic, "marked_from": ()} for topic in message["topics"]]}
        return request(self, api, message, wait_s=wait_s)

    monkeypatch.setattr(BrokerConnection, "request", foreign)
    with BrokerCluster(node.kafka) as cluster, pytest.raises(UnsupportedFeature):
        find_marked(cluster, {TopicPartition(stream_name, 0): 0})


def _create(name: str, partitions: int) -> Message:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": -1, "assignments": [], "configs": []}
    return {"topics": [topic], "timeout_ms": 10_000, "validate_only": False}
