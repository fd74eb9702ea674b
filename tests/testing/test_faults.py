"""`broker.faults`: what unmodified clients make of them, and what the test sees meanwhile."""

import asyncio
import threading
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer
from tests.clients import CONFLUENT, LIBRARIES, Library, Record
from tests.untyped import untyped

import duramen
from duramen import errors
from duramen.testing import Broker

_WAIT_S: Final = 60.0


@pytest.mark.variants(2)
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
@pytest.mark.parametrize("idempotent", [False, True])
def test_a_refused_write_is_sent_again(library: Library, idempotent: bool, broker: Broker, stream: str) -> None:
    broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    library.produce(broker.bootstrap_servers, stream, [Record(b"a"), Record(b"b")], idempotent=idempotent)
    assert [one.value for one in broker.records(stream)] == [b"a", b"b"]
    assert broker.log.count("answered with NOT_LEADER_OR_FOLLOWER") >= 2


@pytest.mark.variants(2)
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
@pytest.mark.parametrize("api", ["Metadata", "ListOffsets", "Fetch"])
def test_a_refused_read_is_asked_again(library: Library, api: str, broker: Broker, stream: str) -> None:
    CONFLUENT.produce(broker.bootstrap_servers, stream, [Record(b"a"), Record(b"b")])
    broker.faults.error(api, "NOT_LEADER_OR_FOLLOWER" if api != "Metadata" else "LEADER_NOT_AVAILABLE", times=2)
    assert [one.value for one in library.consume(broker.bootstrap_servers, stream, 1, 2)] == [b"a", b"b"]


def test_an_error_that_cannot_be_retried_reaches_the_application(broker: Broker, stream: str) -> None:
    broker.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
    said: list[str] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(stream, b"a", on_delivery=lambda error, _: said.append(error.name() if error else ""))
    assert producer.flush(_WAIT_S) == 0
    assert said == ["TOPIC_AUTHORIZATION_FAILED"]
    assert broker.records(stream) == []
    broker.faults.clear()
    CONFLUENT.produce(broker.bootstrap_servers, stream, [Record(b"b")])
    assert [one.value for one in broker.records(stream)] == [b"b"]


@pytest.mark.long
def test_a_group_is_asked_to_join_again(broker: Broker, stream: str) -> None:
    CONFLUENT.produce(broker.bootstrap_servers, stream, [Record(b"a")])
    broker.faults.error("JoinGroup", "COORDINATOR_NOT_AVAILABLE", times=2)
    broker.faults.error("FindCoordinator", 15)
    broker.faults.error("SyncGroup", "REBALANCE_IN_PROGRESS")
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": stream, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([stream])
    message = consumer.poll(_WAIT_S)
    assert message is not None
    assert message.value() == b"a"
    consumer.close()
    logged = broker.log
    assert "JoinGroup" in logged
    assert "SyncGroup" in logged


def test_a_late_acknowledgement_is_a_timeout_and_the_record_is_there(broker: Broker, stream: str) -> None:
    CONFLUENT.produce(broker.bootstrap_servers, stream, [Record(b"first")])
    broker.faults.delay("Produce", 60_000)
    kafka = untyped("kafka")
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=5000, delivery_timeout_ms=5000, linger_ms=0,
        retries=0, enable_idempotence=False, max_block_ms=60_000,
    )  # fmt: skip
    future = producer.send(stream, b"late")
    with pytest.raises(untyped("kafka.errors").KafkaError):
        future.get(_WAIT_S)
    assert [one.value for one in broker.records(stream)] == [b"first", b"late"]
    broker.faults.clear()
    producer.close(timeout=0)


def test_a_late_fetch_is_late(broker: Broker, stream: str) -> None:
    CONFLUENT.produce(broker.bootstrap_servers, stream, [Record(b"a")])
    broker.faults.delay("Fetch", 300)

    async def read() -> tuple[bytes, float]:
        loop = asyncio.get_running_loop()
        consumer: Any = untyped("aiokafka").AIOKafkaConsumer(
            stream, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        )
        await consumer.start()
        began = loop.time()
        try:
            record = await consumer.getone()
        finally:
            await consumer.stop()
        return record.value, loop.time() - began

    value, took_s = asyncio.run(read())
    assert value == b"a"
    assert took_s >= 0.25
    broker.faults.delay("Fetch", 0)


def test_clients_come_back_after_their_connections_were_dropped(broker: Broker, stream: str) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "linger.ms": 0,
         "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "log_level": 0}
    )  # fmt: skip
    values = [str(number).encode() for number in range(40)]
    for value in values:
        producer.produce(stream, value)
        if int(value) % 10 == 5:
            assert producer.flush(_WAIT_S) == 0  # it is connected
        elif int(value) % 10 == 9:
            assert broker.faults.drop_connections() >= 1  # with writes under way
    assert producer.flush(_WAIT_S) == 0
    assert [one.value for one in broker.records(stream)] == values


@pytest.mark.variants(1)
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_nothing_acknowledged_is_lost_in_a_crash(library: Library, broker: Broker, stream: str) -> None:
    """A thread writes while the broker is killed and comes back; what it was told is stored, once and in order."""
    acknowledged: list[bytes] = []
    crashed, again = threading.Event(), threading.Event()

    def write() -> None:
        for number in range(6):
            if number == 3:
                crashed.wait(_WAIT_S)
            value = str(number).encode()
            library.produce(broker.bootstrap_servers, stream, [Record(value)], idempotent=True)
            acknowledged.append(value)
            if number == 2:
                again.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert again.wait(_WAIT_S)
    broker.crash()
    broker.restart()
    crashed.set()
    writer.join(_WAIT_S)
    assert len(acknowledged) == 6
    assert [one.value for one in broker.records(stream)] == acknowledged


def test_a_consumer_goes_on_after_a_crash(broker: Broker, stream: str) -> None:
    CONFLUENT.produce(broker.bootstrap_servers, stream, [Record(b"a")])
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": stream, "auto.offset.reset": "earliest",
         "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "log_level": 0}
    )  # fmt: skip
    consumer.subscribe([stream])
    first = consumer.poll(_WAIT_S)
    assert first is not None
    assert first.value() == b"a"
    consumer.commit(asynchronous=False)
    broker.crash()
    broker.restart()
    CONFLUENT.produce(broker.bootstrap_servers, stream, [Record(b"b")])
    while (message := consumer.poll(_WAIT_S)) is not None and message.error() is not None:
        pass
    assert message is not None
    assert message.value() == b"b"
    consumer.close()


@pytest.mark.parametrize("wrong", [lambda faults: faults.delay("Fetch", -1), lambda faults: faults.delay("Fetch", 0.5),
                                   lambda faults: faults.error("Fetch", 6, times=0),
                                   lambda faults: faults.error("Fetch", "NO_SUCH"),
                                   lambda faults: faults.delay("Fetsh", 1)])  # fmt: skip
def test_what_does_not_fit_is_refused(wrong: Any, broker: Broker) -> None:
    with pytest.raises(errors.RequestInvalid):
        wrong(broker.faults)
    assert not broker.faults.any_set


def test_our_own_client_meets_them_too(broker: Broker, stream: str) -> None:
    broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    with duramen.connect(broker.http_url) as client:
        assert client.produce(stream, ["a"]) == [duramen.Place(0, 0)]
