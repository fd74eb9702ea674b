"""The broker's own topics: every client may read them, none may write to them, whatever it calls itself."""

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.clients import CONFLUENT, Record
from tests.raw import batch_of, produce_bytes

from duramen.client.connection import BrokerConnection
from duramen.codec.kafka.errors import ErrorCode
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.node.process import NodeProcess


@pytest.mark.parametrize("client_id", ["plain", "__admin_client", ""])
def test_nobody_writes_to_the_stream_of_offsets(node: NodeProcess, stream_name: str, client_id: str) -> None:
    CONFLUENT.produce(node.kafka, stream_name, [Record(b"x")])
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": stream_name})
    consumer.commit(offsets=[TopicPartition(stream_name, 0, 1)], asynchronous=False)
    consumer.close()
    host, _, port = node.kafka.rpartition(":")
    connection = BrokerConnection(host, int(port), client_id=client_id, timeout_s=60)
    answer = produce_bytes(connection, OFFSETS_STREAM, batch_of(b"v"))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert answer.base_offset == -1
    connection.close()
