"""Writing: order, partitions, and batches that have to be sent again."""

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer as Librdkafka
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka import TopicPartition as LibrdkafkaPartition

from duramen.base.errors import BatchTooLarge, RequestTimedOut, ServerUnreachable, StreamNotFound
from duramen.client import BrokerCluster, Consumer, Producer, StreamAdmin, TopicPartition
from duramen.client.connection import BrokerConnection
from duramen.codec.batch import HEADER_BYTES, batches, records
from duramen.codec.compression import CODECS
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess


def read(cluster: BrokerCluster, stream: str, partition: int) -> list[bytes | None]:
    consumer = Consumer(cluster)
    at = TopicPartition(stream, partition)
    first, end = consumer.bounds([at])[at]
    return [
        record.value
        for piece in consumer.read(at, first, end)
        for place, head in batches(piece)
        for record in records(piece[place : place + head.size])
    ]


@pytest.mark.parametrize("codec", range(len(CODECS)))
def test_an_unchanged_client_reads_what_is_written(
    node: NodeProcess, cluster: BrokerCluster, stream: str, codec: int
) -> None:
    with Producer(cluster, codec=codec) as producer:
        producer.produce(stream, None, key=b"", partition=1, timestamp_ms=1_700_000_000_123)
        producer.produce(stream, b"", partition=1, headers=[(b"a", b"1"), (b"a", None)], timestamp_ms=1_700_000_000_000)
    assert producer.acknowledged == 2
    consumer = Librdkafka({"bootstrap.servers": node.kafka, "group.id": stream, "check.crcs": True})
    consumer.assign([LibrdkafkaPartition(stream, 1, 0)])
    one, two = consumer.consume(2, timeout=60)
    consumer.close()
    assert (one.value(), one.key(), one.headers(), one.timestamp()[1]) == (None, b"", None, 1_700_000_000_123)
    assert (two.value(), two.key(), two.timestamp()[1]) == (b"", None, 1_700_000_000_000)
    assert two.headers() == [("a", b"1"), ("a", None)]


def test_keys_go_where_librdkafka_sends_them(node: NodeProcess, cluster: BrokerCluster, stream: str) -> None:
    theirs = LibrdkafkaProducer({"bootstrap.servers": node.kafka, "partitioner": "murmur2_random"})
    keys = [b"key-%d" % number for number in range(100)]
    with Producer(cluster) as ours:
        for key in keys:
            theirs.produce(stream, key, key)
            ours.produce(stream, key, key=key)
        assert theirs.flush(60) == 0
    for partition in range(3):
        values = read(cluster, stream, partition)
        assert values
        assert all(values.count(value) == 2 for value in values)


def test_records_without_keys_are_spread_batch_by_batch(cluster: BrokerCluster, stream: str) -> None:
    with Producer(cluster, batch_bytes=500) as producer:
        for number in range(2000):
            producer.produce(stream, b"%04d" % number)
    counts = [len(read(cluster, stream, partition)) for partition in range(3)]
    assert sum(counts) == 2000
    assert all(counts)


def test_what_a_broker_killed_under_load_acknowledged_is_there_once_and_in_order(
    new_node: Callable[..., NodeProcess],
) -> None:
    with new_node() as node, BrokerCluster(node.kafka, timeout_s=60) as cluster:
        StreamAdmin(cluster).create_stream("busy", 3)

        def kill_and_restart() -> None:
            node.kill()
            node.restart()

        killers = []
        with Producer(cluster, batch_bytes=2000) as producer:
            for number in range(60_000):
                producer.produce("busy", b"%06d" % number, partition=number % 3)
                if number % 20_000 == 10_000:
                    killers.append(threading.Thread(target=kill_and_restart))
                    for earlier in killers[:-1]:
                        earlier.join()
                    killers[-1].start()
        for killer in killers:
            killer.join()
        for partition in range(3):
            assert read(cluster, "busy", partition) == [b"%06d" % number for number in range(partition, 60_000, 3)]


def test_answers_that_are_lost_do_not_double_records(
    cluster: BrokerCluster, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third request is stored, and its connection lost before the answer is read."""
    send = BrokerConnection.send
    count = 0

    def unlucky(connection: BrokerConnection, api: ApiKey, *rest: Any, **named: Any) -> int:
        nonlocal count
        sent = send(connection, api, *rest, **named)
        count += api is ApiKey.PRODUCE
        if api is ApiKey.PRODUCE and count % 3 == 0:
            connection.receive(sent)
            connection.close()
        return sent

    monkeypatch.setattr(BrokerConnection, "send", unlucky)
    with Producer(cluster, batch_bytes=1000) as producer:
        for number in range(3000):
            producer.produce(stream, b"%04d" % number, partition=number % 3)
    assert count > 30
    assert producer.acknowledged == 3000
    for partition in range(3):
        assert read(cluster, stream, partition) == [b"%04d" % number for number in range(partition, 3000, 3)]


class TestErrors:
    def test_no_such_stream(self, cluster: BrokerCluster) -> None:
        with pytest.raises(StreamNotFound, match="there is no stream nobody-made-this"):
            Producer(cluster).produce("nobody-made-this", b"x")

    def test_no_such_partition(self, cluster: BrokerCluster, stream: str) -> None:
        with pytest.raises(StreamNotFound, match=f"stream {stream} has no partition 3"):
            Producer(cluster).produce(stream, b"x", partition=3)

    def test_too_large(self, cluster: BrokerCluster, stream: str) -> None:
        producer = Producer(cluster)
        producer.produce(stream, bytes(2_000_000), partition=0)
        with pytest.raises(BatchTooLarge, match=r"max\.message\.bytes"):
            producer.flush()
        with pytest.raises(BatchTooLarge):
            producer.flush()

    def test_a_large_record_is_not_put_with_others(self, cluster: BrokerCluster, stream: str) -> None:
        with Producer(cluster) as producer:
            producer.produce(stream, bytes(500_000), partition=0)
            producer.produce(stream, bytes(1_000_000), partition=0)
        assert [len(value or b"") for value in read(cluster, stream, 0)] == [500_000, 1_000_000]

    def test_a_stream_deleted_meanwhile(self, cluster: BrokerCluster, stream: str) -> None:
        producer = Producer(cluster)
        producer.produce(stream, b"x", partition=0)
        StreamAdmin(cluster).delete_stream(stream)
        with pytest.raises(StreamNotFound, match=f"there is no stream {stream}"):
            producer.flush()

    @pytest.mark.long
    def test_a_broker_that_does_not_come_back(self, new_node: Callable[..., NodeProcess]) -> None:
        with new_node() as node, BrokerCluster(node.kafka, timeout_s=4) as cluster:
            StreamAdmin(cluster).create_stream("s", 1)
            producer = Producer(cluster)
            producer.produce("s", b"w")
            producer.flush()
            producer.produce("s", b"x")
            producer.produce("s", b"y")
            node.kill()
            with pytest.raises(RequestTimedOut, match=r"2 records are not acknowledged: .*Connection refused"):
                producer.flush()

    @pytest.mark.long
    def test_a_broker_that_is_away_at_first(self, new_node: Callable[..., NodeProcess]) -> None:
        with new_node() as node, BrokerCluster(node.kafka, timeout_s=4) as cluster:
            StreamAdmin(cluster).create_stream("s", 1)
            producer = Producer(cluster)
            producer.produce("s", b"x")
            node.kill()
            with pytest.raises(ServerUnreachable, match="Connection refused"):
                producer.flush()
            node.restart()
            producer.flush()
            assert producer.acknowledged == 1
            assert read(cluster, "s", 0) == [b"x"]


def test_batches_fit_the_stream(cluster: BrokerCluster, stream_name: str) -> None:
    """However many headers and small records they are made of."""
    StreamAdmin(cluster).create_stream(stream_name, 1, {"max.message.bytes": "2000"})
    with Producer(cluster, batch_bytes=2000 - HEADER_BYTES) as producer:
        for number in range(1000):
            producer.produce(stream_name, b"%d" % number, headers=[(b"n", b"x")] * (number % 7))
    assert read(cluster, stream_name, 0) == [b"%d" % number for number in range(1000)]
    assert (producer.acknowledged, producer.unacknowledged, producer.in_doubt) == (1000, 0, 0)


def test_what_was_refused_is_in_no_doubt(cluster: BrokerCluster, stream_name: str) -> None:
    StreamAdmin(cluster).create_stream(stream_name, 1, {"max.message.bytes": "2000"})
    producer = Producer(cluster)
    producer.produce(stream_name, b"small")
    producer.flush()
    producer.produce(stream_name, b"x" * 3000)
    producer.produce(stream_name, b"y" * 3000)
    with pytest.raises(BatchTooLarge):
        producer.flush()
    assert (producer.acknowledged, producer.unacknowledged, producer.in_doubt) == (1, 2, 0)


@pytest.mark.long
def test_what_a_lost_node_was_sent_is_in_doubt(new_node: Callable[..., NodeProcess]) -> None:
    with new_node() as node, BrokerCluster(node.kafka, timeout_s=4) as cluster:
        StreamAdmin(cluster).create_stream("s", 1)
        producer = Producer(cluster)
        producer.produce("s", b"1")
        producer.flush()
        producer.produce("s", b"2")
        node.signal(signal.SIGSTOP)
        with pytest.raises(RequestTimedOut):
            producer.flush()
        assert (producer.acknowledged, producer.unacknowledged, producer.in_doubt) == (1, 1, 1)
        node.signal(signal.SIGCONT)


def test_without_acknowledgements_it_waits_until_all_is_taken(cluster: BrokerCluster, stream: str) -> None:
    with Producer(cluster, acks=0, batch_bytes=2000) as producer:
        for number in range(3000):
            producer.produce(stream, b"%d" % number, partition=1)
    assert (producer.sent, producer.acknowledged, producer.unacknowledged) == (3000, 0, 0)
    assert read(cluster, stream, 1) == [b"%d" % number for number in range(3000)]


def test_without_acknowledgements_nothing_is_sent_twice(new_node: Callable[..., NodeProcess]) -> None:
    with new_node() as node, BrokerCluster(node.kafka, timeout_s=10) as cluster:
        StreamAdmin(cluster).create_stream("s", 1)
        producer = Producer(cluster, acks=0)
        producer.produce("s", b"1")
        producer.flush()
        node.kill()
        producer.produce("s", b"2")
        with pytest.raises(ServerUnreachable):
            producer.flush()
        assert producer.sent == 1
        with pytest.raises(ServerUnreachable):
            producer.flush()


def test_acks_of_the_leader_alone(cluster: BrokerCluster, stream: str) -> None:
    with Producer(cluster, acks=1) as producer:
        producer.produce(stream, b"1", partition=0)
    assert producer.acknowledged == 1
    assert read(cluster, stream, 0) == [b"1"]
