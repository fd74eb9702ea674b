"""DeleteRecords: unmodified admin clients, what is left, and what is refused; over HTTP and the command line too."""

import json
from collections.abc import Callable
from http.client import HTTPConnection

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import AIOKAFKA, CONFLUENT, Place, Record
from tests.untyped import untyped

from duramen.client.connection import BrokerConnection
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess


def _fill(node: NodeProcess, admin: AdminClient, name: str, **config: str) -> None:
    topic = NewTopic(name, 2, 1, config={key.replace("_", "."): value for key, value in config.items()})
    admin.create_topics([topic])[name].result(60)
    for partition in range(2):
        AIOKAFKA.produce(
            node.kafka, name, [Record(b"%d" % at * 100, b"k", partition=partition) for at in range(20)]
        )  # fmt: skip


def _low(node: NodeProcess, name: str) -> list[int]:
    consumer = untyped("kafka").KafkaConsumer(bootstrap_servers=node.kafka)
    try:
        places = [untyped("kafka").TopicPartition(name, index) for index in range(2)]
        found = consumer.beginning_offsets(places)
        return [found[place] for place in places]
    finally:
        consumer.close()


def test_confluent_deletes_up_to_an_offset_and_up_to_the_end(
    node: NodeProcess, admin: AdminClient, stream_name: str
) -> None:
    _fill(node, admin, stream_name, segment_bytes="1000")
    wanted = [TopicPartition(stream_name, 0, 7), TopicPartition(stream_name, 1, -1)]
    lows = {place.partition: future.result(60).low_watermark for place, future in admin.delete_records(wanted).items()}
    assert lows == {0: 7, 1: 20}
    assert _low(node, stream_name) == [7, 20]
    found = CONFLUENT.consume(node.kafka, stream_name, 2, 13)
    assert [read.place for read in found] == [Place(0, offset) for offset in range(7, 20)]
    (again,) = admin.delete_records([TopicPartition(stream_name, 0, 3)]).values()
    assert again.result(60).low_watermark == 7, "what is gone stays gone"
    assert AIOKAFKA.produce(node.kafka, stream_name, [Record(b"more", partition=1)]) == [Place(1, 20)]


def test_kafka_python_deletes(node: NodeProcess, admin: AdminClient, stream_name: str) -> None:
    _fill(node, admin, stream_name)
    kafka = untyped("kafka")
    client = kafka.KafkaAdminClient(bootstrap_servers=node.kafka)
    try:
        client.delete_records({kafka.TopicPartition(stream_name, 0): 5, kafka.TopicPartition(stream_name, 1): 20})
    finally:
        client.close()
    assert _low(node, stream_name) == [5, 20]


def test_what_was_deleted_stays_deleted_over_a_kill(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node().start()
    admin = AdminClient({"bootstrap.servers": node.kafka})
    _fill(node, admin, "s", segment_bytes="1000")
    wanted = [TopicPartition("s", 0, 15), TopicPartition("s", 1, 20)]
    assert [future.result(60).low_watermark for future in admin.delete_records(wanted).values()] == [15, 20]
    node.kill()
    node.start()
    assert _low(node, "s") == [15, 20]
    found = CONFLUENT.consume(node.kafka, "s", 2, 5)
    assert [read.place for read in found] == [Place(0, offset) for offset in range(15, 20)]


def test_what_is_refused(node: NodeProcess, admin: AdminClient, raw: BrokerConnection, stream_name: str) -> None:
    _fill(node, admin, stream_name)
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": stream_name})
    consumer.commit(offsets=[TopicPartition(stream_name, 0, 1)], asynchronous=False)
    consumer.close()
    _fill(node, admin, stream_name + "-keyed", cleanup_policy="compact")
    _fill(node, admin, stream_name + "-both", cleanup_policy="compact,delete")
    for name, offset, code in (
        (stream_name, 21, KafkaError.OFFSET_OUT_OF_RANGE),
        (stream_name + "-keyed", 5, KafkaError.POLICY_VIOLATION),
    ):
        (future,) = admin.delete_records([TopicPartition(name, 0, offset)]).values()
        with pytest.raises(KafkaException) as refused:
            future.result(60)
        assert refused.value.args[0].code() == code
    (fine,) = admin.delete_records([TopicPartition(stream_name + "-both", 0, 5)]).values()
    assert fine.result(60).low_watermark == 5
    wanted = (stream_name, 0, 2), (stream_name, 9, 0), (stream_name + "-nowhere", 0, 0), ("__consumer_offsets", 0, 0)
    asked = [
        {"name": name, "partitions": [{"partition_index": partition, "offset": offset}]}
        for name, partition, offset in wanted
    ]
    answered = raw.request(ApiKey.DELETE_RECORDS, {"topics": asked, "timeout_ms": 1000})["topics"]
    rows = [(row["low_watermark"], row["error_code"]) for topic in answered for row in topic["partitions"]]
    unknown, internal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION
    assert rows == [(2, ErrorCode.NONE), (-1, unknown), (-1, unknown), (-1, internal)]


def _post(node: NodeProcess, name: str, body: object) -> tuple[int, dict[str, object]]:
    connection = HTTPConnection(node.http, timeout=60)
    try:
        connection.request(
            "POST", f"/v1/streams/{name}/records/delete", json.dumps(body), {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_over_http(node: NodeProcess, admin: AdminClient, stream_name: str) -> None:
    _fill(node, admin, stream_name)
    assert _post(node, stream_name, {"before": 4, "partition": 1}) == (
        200,
        {"partitions": [{"partition": 1, "start_offset": 4}]},
    )
    status, problem = _post(node, stream_name, {"before": 21})
    assert (status, problem["type"]) == (400, "offset-out-of-range")
    assert _low(node, stream_name) == [0, 4], "nothing was deleted in any partition"
    assert _post(node, stream_name, {}) == (
        200,
        {"partitions": [{"partition": 0, "start_offset": 20}, {"partition": 1, "start_offset": 20}]},
    )
    assert _post(node, stream_name + "-nowhere", {})[0] == 404
