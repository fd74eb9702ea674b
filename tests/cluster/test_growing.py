"""A node that was alone becomes a cluster: nothing is copied by hand, nothing is lost, and others come to it."""

import os
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import until

from duramen.doors.cluster.secret import SECRET_BYTES, make_secret
from duramen.node.process import NodeProcess, hold_port

WAIT_S = 60.0
RECORDS = 500


def produced(servers: str, topic: str, first: int) -> None:
    """Records `first` and so on, each acknowledged."""
    told: list[object] = []
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for number in range(first, first + RECORDS):
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, message: told.append(error or message))
    assert producer.flush(WAIT_S) == 0
    assert all(isinstance(one, Message) for one in told)


def consumed(servers: str, topic: str, count: int) -> list[int]:
    """The first so many records of partition 0, and what the group had committed is where it begins."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0)])
    found: list[int] = []

    def read() -> bool:
        for message in consumer.consume(count, 1.0):
            assert message.error() is None
            found.append(int(message.value() or b""))
        return len(found) >= count

    until(read, WAIT_S)
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def test_a_node_that_was_alone_grows_into_a_cluster(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    make_secret(str(secret), os.urandom(SECRET_BYTES))
    held = {number: hold_port() for number in (1, 2)}
    listens = {number: f"127.0.0.1:{one.getsockname()[1]}" for number, one in held.items()}
    one = {"cluster.listen": listens[1], "cluster.seeds": listens[1], "cluster.secret.file": secret, "node.id": 1}
    two = {"cluster.listen": listens[2], "cluster.seeds": listens[1], "cluster.secret.file": secret, "node.id": 2}
    directory = tmp_path / "one"
    try:
        with NodeProcess(directory, {"nats.server": "off"}) as alone:
            produced(alone.kafka, "flights", 0)
            assert consumed(alone.kafka, "flights", RECORDS) == list(range(RECORDS))
        first = NodeProcess(directory, {**one, "nats.server": "off"})
        second = NodeProcess(tmp_path / "two", {**two, "nats.server": "off"})
        with first, second:
            produced(first.kafka, "flights", RECORDS)
            # The group goes on where it was when the node was alone.
            assert consumed(second.kafka, "flights", RECORDS) == list(range(RECORDS, 2 * RECORDS))
            admin = AdminClient({"bootstrap.servers": second.kafka})
            admin.create_topics([NewTopic("both", 1, 2)])["both"].result(WAIT_S)
            until(lambda: sorted(admin.list_topics("both").topics["both"].partitions[0].isrs) == [1, 2], WAIT_S)
            produced(first.kafka, "both", 0)
    finally:
        for one_held in held.values():
            one_held.close()
