"""Test your own code against a real Kafka broker, which pytest has as a fixture once Duramen is installed.

pytest examples/test_with_broker.py
"""

from confluent_kafka import Consumer, Producer

from duramen.testing import Broker


def send_orders(bootstrap_servers: str, topic: str, count: int) -> None:
    """The code that is tested: your own."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(count):
        producer.produce(topic, f"order {number}".encode(), b"berlin")
    producer.flush(10)


def test_orders_are_sent(duramen_broker: Broker, duramen_stream: str) -> None:
    send_orders(duramen_broker.bootstrap_servers, duramen_stream, 3)
    assert [record.text for record in duramen_broker.records(duramen_stream)] == ["order 0", "order 1", "order 2"]


def test_orders_are_sent_again_where_the_leader_moves(duramen_broker: Broker, duramen_stream: str) -> None:
    duramen_broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    send_orders(duramen_broker.bootstrap_servers, duramen_stream, 3)
    assert len(duramen_broker.records(duramen_stream)) == 3


def test_orders_outlive_a_crash(duramen_broker: Broker, duramen_stream: str) -> None:
    send_orders(duramen_broker.bootstrap_servers, duramen_stream, 3)
    duramen_broker.crash()
    duramen_broker.restart()
    settings = {
        "bootstrap.servers": duramen_broker.bootstrap_servers,
        "group.id": duramen_stream,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.subscribe([duramen_stream])
    values = [message.value() for message in consumer.consume(3, timeout=10)]
    consumer.close()
    assert values == [b"order 0", b"order 1", b"order 2"]
