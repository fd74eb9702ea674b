"""Since when a partition is what it is."""

import time
from collections.abc import Callable

from confluent_kafka import TopicPartition as LibrdkafkaPartition
from confluent_kafka.admin import AdminClient

from duramen.client import BrokerCluster, Producer, StreamAdmin, TopicPartition
from duramen.client.origin import Origin, origin_of
from duramen.node.process import NodeProcess


def test_a_broker_says_when_a_stream_was_made_and_when_its_start_moved(
    new_node: Callable[..., NodeProcess],
) -> None:
    node = new_node().start()
    before_ms = int(time.time() * 1000)
    with BrokerCluster(node.kafka) as cluster, Producer(cluster) as producer:
        StreamAdmin(cluster).create_stream("flights", 1)
        for number in range(10):
            producer.produce("flights", b"%d" % number, partition=0)
        producer.flush()
        at = TopicPartition("flights", 0)
        whole = origin_of(cluster, at)
        assert whole == Origin(0, whole.created_ms, -1)
        assert before_ms <= whole.created_ms <= int(time.time() * 1000)
        admin = AdminClient({"bootstrap.servers": node.kafka})
        (deleted,) = admin.delete_records([LibrdkafkaPartition("flights", 0, 4)]).values()
        deleted.result(60)
        cut = origin_of(cluster, at)
        assert cut == whole._replace(start_offset=4, start_moved_ms=cut.start_moved_ms)
        assert whole.created_ms <= cut.start_moved_ms <= int(time.time() * 1000)
    node.stop()
    node.start()
    # What is not written down is not said.
    with BrokerCluster(node.kafka) as cluster:
        assert origin_of(cluster, at) == cut._replace(start_moved_ms=-1)
