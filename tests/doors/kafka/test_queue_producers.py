"""Idempotent producers of queues' topics and of topics of the inventory over kill -9, with a node of the test's own."""

from collections.abc import Callable

import pytest
from tests.clients import CONFLUENT
from tests.interrupted import produce_interrupted
from tests.raw import connect, produce_bytes

import duramen
from duramen.codec.batch import BatchInput, encode
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

TOPICS = ("mail.ann", "apex.dev.orders")
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def make_topics(node: NodeProcess) -> None:
    with duramen.connect(node.http) as client:
        client.spaces.create("mail", shards=1, config={"queue.topic.prefix": "mail."})
        client.inventory.create_tenants(["apex"])
        client.inventory.create_namespaces("apex", ["dev"])
        client.inventory.create_topics("apex/dev", ["orders"])


def values_of(node: NodeProcess, topic: str, count: int) -> list[bytes | None]:
    return [read.value for read in CONFLUENT.consume(node.kafka, topic, 1, count)]


@pytest.mark.long
def test_a_batch_that_is_sent_again_after_kill_nine_is_stored_once(new_node: Callable[..., NodeProcess]) -> None:
    with new_node({"inventory.shards": 1, "inventory.queue.shards": 1}) as node:
        make_topics(node)
        made = {"transactional_id": None, "transaction_timeout_ms": 1000}
        connection = connect(node)
        producer_id: int = connection.request(ApiKey.INIT_PRODUCER_ID, made)["producer_id"]

        def send(topic: str, sequence: int) -> tuple[int, int]:
            """The error and the offset."""
            values = [BatchInput(1, None, b"%d" % number) for number in (sequence, sequence + 1)]
            batch = encode(values, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
            answer = produce_bytes(connection, topic, batch)
            return answer.error_code, answer.base_offset

        first = {topic: [send(topic, sequence) for sequence in (0, 2, 4)] for topic in TOPICS}
        connection.close()
        node.kill()
        node.start()
        connection = connect(node)
        for topic, answers in first.items():
            assert [send(topic, sequence) for sequence in (4, 0, 2)] == [answers[2], *answers[:2]]
            assert send(topic, 8)[0] == OUT_OF_ORDER
            assert send(topic, 6)[0] == send(topic, 8)[0] == 0
        connection.close()
        for topic in TOPICS:
            assert values_of(node, topic, 10) == [b"%d" % number for number in range(10)]


@pytest.mark.long
def test_a_producer_goes_on_over_kill_nine_with_batches_in_flight(new_node: Callable[..., NodeProcess]) -> None:
    with new_node() as node:
        make_topics(node)

        def kill(_: int, __: Callable[[], bool]) -> None:
            node.kill()
            node.start()

        produce_interrupted(node.kafka, [*TOPICS, "mail.bob"], kill)
