"""Spark over keyed streams as snapshots: the state, each key once."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.clients import until

import duramen
from duramen.client.http import HttpNode
from duramen.node.process import NodeProcess

State = dict[bytes, bytes]


@pytest.fixture
def keyed(spark: SparkSession, node: NodeProcess, stream_name: str) -> "Iterator[Keyed]":
    with duramen.connect(node.http) as client:
        yield Keyed(spark, node, stream_name, client)


class Keyed:
    """A keyed stream of two partitions, what was written, and what Spark reads of it."""

    def __init__(self, spark: SparkSession, node: NodeProcess, name: str, client: duramen.Client) -> None:
        self.spark, self.node, self.name, self.client = spark, node, name, client
        self.client.streams.create(name, partitions=2, config={"keyed": True})
        self.state: State = {}
        self.chance = Random(5)

    def write(self, count: int) -> dict[int, int]:
        """Some records, a fifth of them deletions; returns where the snapshot is then."""
        wishes = []
        for _ in range(count):
            key, value = b"k%d" % self.chance.randrange(100), b"v%d" % self.chance.randrange(10**6)
            gone = self.chance.random() < 0.2
            wishes.append(duramen.NewRecord(None if gone else value, key=key))
            self.state.pop(key, None)
            if not gone:
                self.state[key] = value
        self.client.produce(self.name, wishes)
        return self.client.snapshot(self.name).at

    def read(self, **options: Any) -> DataFrame:
        reader = self.spark.read.format("duramen").option("kafka.bootstrap.servers", self.node.kafka)
        given = {"subscribe": self.name, "server": self.node.http, **options}
        for name, value in given.items():
            reader = reader.option(name, value)
        return reader.load()

    def rows(self, **options: Any) -> State:
        found = self.read(**options).select("key", "value").collect()
        assert len(found) == len({bytes(row.key) for row in found}), "a key comes twice"
        return {bytes(row.key): bytes(row.value) for row in found}


def test_a_snapshot_is_the_state_and_an_older_one_what_it_was(keyed: Keyed) -> None:
    at = keyed.write(500)
    before = dict(keyed.state)
    assert keyed.rows(snapshot="true") == before
    keyed.write(300)
    assert keyed.rows(snapshot="TRUE", minPartitions=5) == keyed.state
    frame = keyed.read(snapshot=json.dumps(at))
    assert frame.count() == len(before)
    assert keyed.rows(snapshot=json.dumps(at)) == before
    assert keyed.read(snapshot="true", columns="partition").groupBy("partition").count().count() == 2
    assert keyed.read(snapshot="false").count() == 800


@pytest.mark.long
def test_what_does_not_fit_is_said_in_a_line(keyed: Keyed) -> None:
    keyed.write(50)
    plain = f"{keyed.name}-plain"
    keyed.client.streams.create(plain, partitions=1)
    for options, said in (
        ({"snapshot": "true", "startingOffsets": "earliest"}, "startingOffsets does not go with snapshot"),
        ({"snapshot": "yes"}, "snapshot: 'yes' does not fit"),
        ({"snapshot": '{"0": -1, "1": 0}'}, "does not fit"),
        ({"snapshot": '{"0": 1}'}, "the vector must name the partitions that are read; 1 is not in both"),
        ({"snapshot": '{"0": 1, "1": 5000}'}, "the newest snapshot is at"),
        ({"snapshot": '{"0": 1}', "subscribe": f"{keyed.name},{plain}"}, "not keyed"),
        ({"snapshot": "true", "subscribe": plain}, f"stream {plain} is not keyed"),
        ({"snapshot": "true", "server": "127.0.0.1:1"}, "server"),
    ):
        with pytest.raises(PySparkException) as caught:
            keyed.read(**{"kafka.request.timeout.ms": 2000, **options}).count()
        assert said in str(caught.value), options


@pytest.mark.long
def test_a_snapshot_that_is_too_old_is_refused(keyed: Keyed) -> None:
    at = keyed.write(50)
    keyed.client.streams.alter(keyed.name, config={"snapshot.retention.ms": 0})
    keyed.write(50)
    path = f"/v1/streams/{keyed.name}/snapshot"
    node = HttpNode(keyed.node.http)
    until(lambda: all(part["oldest"] > at[part["partition"]] for part in node.get(path)["partitions"]))
    with pytest.raises(PySparkException, match="snapshots can be read from"):
        keyed.read(snapshot=json.dumps(at)).count()
