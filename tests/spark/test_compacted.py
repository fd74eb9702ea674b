"""Spark over a compacted stream: the records that are left, where offsets are missing and batches are empty."""

from collections.abc import Callable

from pyspark.sql import SparkSession
from tests.clients import CONFLUENT, Record, until

import duramen
from duramen.client import BrokerCluster, StreamAdmin
from duramen.node.process import NodeProcess

_COUNT = 60


def test_a_batch_is_what_compaction_left(spark: SparkSession, new_node: Callable[..., NodeProcess]) -> None:
    node = new_node({"log.cleaner.backoff.ms": 50, "log.cleaner.io.max.bytes.per.second": 0}).start()
    config = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0"}
    with BrokerCluster(node.kafka) as cluster:
        StreamAdmin(cluster).create_stream("keyed", 1, config)
    for first in range(0, _COUNT, 5):
        records = [Record(b"%d" % at * 100, b"key-%d" % (at // 30 * (at % 5))) for at in range(first, first + 5)]
        CONFLUENT.produce(node.kafka, "keyed", records, compression=("none", "lz4")[first // 5 % 2])
    with duramen.connect(node.http) as client:
        until(lambda: sum(len(batch.records) for batch in client.consume("keyed")) < _COUNT / 2)
    frame = spark.read.format("duramen").option("kafka.bootstrap.servers", node.kafka).option("subscribe", "keyed")
    rows = sorted((row.offset, bytes(row.key), bytes(row.value)) for row in frame.load().collect())
    assert 5 <= len(rows) < _COUNT / 2
    assert {key: value for _, key, value in rows} == {
        b"key-%d" % (at // 30 * (at % 5)): b"%d" % at * 100 for at in range(_COUNT)
    }
    assert all(value == b"%d" % offset * 100 for offset, _, value in rows)
