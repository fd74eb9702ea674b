"""Transactions are not supported yet: every client is told so at once, and gives up instead of asking again."""

import asyncio

import pytest
from confluent_kafka import KafkaException, Producer
from tests.raw import connect
from tests.untyped import untyped

from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

_S = 30.0


def test_confluent_gives_up(node: NodeProcess, stream_name: str) -> None:
    producer = Producer({"bootstrap.servers": node.kafka, "transactional.id": stream_name})
    with pytest.raises(KafkaException, match="transactions are not supported yet") as raised:
        producer.init_transactions(_S)
    error = raised.value.args[0]
    assert error.name() == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    assert error.fatal()


def test_kafka_python_gives_up(node: NodeProcess, stream_name: str) -> None:
    producer = untyped("kafka").KafkaProducer(bootstrap_servers=node.kafka, transactional_id=stream_name)
    with pytest.raises(untyped("kafka.errors").TransactionalIdAuthorizationFailedError):
        producer.init_transactions()
    producer.close(0)


def test_aiokafka_gives_up(node: NodeProcess, stream_name: str) -> None:
    async def main() -> None:
        producer = untyped("aiokafka").AIOKafkaProducer(bootstrap_servers=node.kafka, transactional_id=stream_name)
        with pytest.raises(untyped("aiokafka.errors").TransactionalIdAuthorizationFailed):
            await producer.start()
        await producer.stop()

    asyncio.run(main())


def test_who_does_not_ask_for_the_coordinator_is_refused_too(node: NodeProcess, stream_name: str) -> None:
    connection = connect(node)
    wish = {"transactional_id": stream_name, "transaction_timeout_ms": 60_000}
    answer = connection.request(ApiKey.INIT_PRODUCER_ID, wish)
    assert answer["error_code"] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert answer["producer_id"] == -1
    connection.close()
