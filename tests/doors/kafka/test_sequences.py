"""Which first sequence of an idempotent producer is taken, and what has to come again before others are."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.doors.kafka.asking import Asking, codes

from duramen.codec.batch import BatchInput, encode
from duramen.codec.kafka import produce
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.produce import PartitionData, ProduceRequest, TopicData
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class Producer:
    """An idempotent producer, batch by batch, with the sequences that a test says."""

    def __init__(self, asking: Asking, topic: str) -> None:
        self._asking = asking
        self._topic = topic
        answer = asking.ask(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout_ms": 1000})
        self._id: int = answer["producer_id"]

    def send(self, sequence: int, *, epoch: int = 0) -> int:
        """The error of a batch of one record."""
        new = [BatchInput(1, None, b"%d" % sequence)]
        batch = encode(new, producer_id=self._id, producer_epoch=epoch, base_sequence=sequence)
        request = ProduceRequest(None, -1, 5000, [TopicData(self._topic, [PartitionData(0, memoryview(batch))])])
        frame, start = self._asking.ask_bytes(ApiKey.PRODUCE, 9, b"".join(produce.encode_request(9, request)))
        return produce.decode_response(9, frame, start)[0].partitions[0].error_code


@pytest.fixture
def asking(node: NodeProcess) -> Iterator[Asking]:
    """A raw connection."""
    with Asking(node) as connection:
        yield connection


def create(asking: Asking, name: str) -> None:
    topic: Any = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": []}
    assert codes(asking.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 5000})["topics"]) == [0]


def delete(asking: Asking, name: str) -> None:
    asked: Any = {"topic_names": [name], "timeout_ms": 5000}
    assert codes(asking.ask(ApiKey.DELETE_TOPICS, 5, asked)["responses"]) == [0]


def test_a_new_producer_begins_at_zero(asking: Asking, stream_name: str) -> None:
    create(asking, stream_name)
    first, second = Producer(asking, stream_name), Producer(asking, stream_name)
    assert first.send(1) == OUT_OF_ORDER
    assert [first.send(0), first.send(1)] == [0, 0]
    assert second.send(1) == OUT_OF_ORDER
    assert second.send(1, epoch=3) == OUT_OF_ORDER
    assert second.send(0) == 0


def test_whose_records_were_deleted_goes_on(asking: Asking, stream_name: str) -> None:
    create(asking, stream_name)
    producer = Producer(asking, stream_name)
    assert [producer.send(0), producer.send(1)] == [0, 0]
    topic = {"name": stream_name, "partitions": [{"partition_index": 0, "offset": 2}]}
    asking.ask(ApiKey.DELETE_RECORDS, 2, {"topics": [topic], "timeout_ms": 5000})
    assert producer.send(2) == 0


def test_a_producer_goes_on_in_a_topic_that_is_made_again_in_its_order(asking: Asking, stream_name: str) -> None:
    """Its batches were refused while there was none: the first of them comes first."""
    create(asking, stream_name)
    producer = Producer(asking, stream_name)
    assert producer.send(0) == 0
    delete(asking, stream_name)
    assert producer.send(1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create(asking, stream_name)
    assert producer.send(2) == ErrorCode.NOT_LEADER_OR_FOLLOWER  # retriable: all are sent again in their order
    assert [producer.send(1), producer.send(2), producer.send(3)] == [0, 0, 0]
    late = Producer(asking, stream_name)
    assert late.send(5) == 0  # it may have written to the topic before
