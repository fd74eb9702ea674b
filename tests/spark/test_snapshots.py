"""Spark over keyed streams as snapshots: the state, each key once, and in streaming queries what changed since."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.clients import until

import duramen
from duramen.client.http import HttpNode
from duramen.node.process import NodeProcess

State = dict[bytes, bytes]
Changes = dict[bytes, bytes | None]


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


class Merging:
    """A query that merges micro-batches by key, run once and again."""

    def __init__(self, keyed: Keyed, directory: Path, **options: str) -> None:
        self._keyed, self._checkpoint, self._options = keyed, str(directory / "checkpoint"), options
        self.state: State = {}
        self.seen: list[Changes] = []
        self.last: Changes = {}
        self.fails = False

    def _take(self, frame: DataFrame, _: int) -> None:
        found = [(bytes(row.key), row.value) for row in frame.select("key", "value").collect()]
        self.last = {key: value if value is None else bytes(value) for key, value in found}
        assert len(found) == len(self.last), "a key comes twice"
        if self.fails:
            self.fails = False
            raise RuntimeError("not this time")
        self.seen.append(self.last)
        whole = self.state | self.last
        self.state = {key: value for key, value in whole.items() if value is not None}

    def start(self, **trigger: Any) -> StreamingQuery:
        """Start it, or go on."""
        keyed = self._keyed
        given = {"kafka.bootstrap.servers": keyed.node.kafka, "server": keyed.node.http, "snapshot": "true"}
        reader = keyed.spark.readStream.format("duramen").options(**given, **self._options)
        writer = reader.load(keyed.name).writeStream.queryName(keyed.name).foreachBatch(self._take)
        writer = writer.option("checkpointLocation", self._checkpoint)
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self) -> list[dict[str, Any]]:
        """To where the stream ends; the progress of each micro-batch."""
        query = self.start(availableNow=True)
        query.awaitTermination()
        return [json.loads(one.json) for one in query.recentProgress]


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


def test_a_streaming_query_has_the_state_first_and_then_what_changed(keyed: Keyed, tmp_path: Path) -> None:
    query = Merging(keyed, tmp_path)
    for batch in range(2):
        keyed.write(400)
        progress = query.run()
        assert query.state == keyed.state
        assert [one["batchId"] for one in progress] == [batch]
        (source,) = progress[0]["sources"]
        assert source["description"] == f"Duramen[Subscribe[{keyed.name}]]"
        assert source["metrics"]["maxOffsetsBehindLatest"] == "0"
        assert source["latestOffset"][keyed.name]["0"] == source["endOffset"][keyed.name]["0"]
    until(lambda: not any(one.lag_records for one in keyed.client.groups.describe(keyed.name).offsets))


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"minPartitions": "5"}])
def test_a_micro_batch_that_failed_comes_again_as_it_was(keyed: Keyed, tmp_path: Path, options: dict[str, str]) -> None:
    keyed.client.streams.alter(keyed.name, config={"snapshot.retention.ms": 0})
    query = Merging(keyed, tmp_path, **options)
    for _ in range(3):
        keyed.write(3000)
        query.fails = True
        with pytest.raises(StreamingQueryException, match="not this time"):
            query.run()
        failed = dict(query.last)
        assert failed
        keyed.write(3000)
        assert len(query.run()) == 2
        assert query.seen[-2] == failed
        assert query.state == keyed.state


@pytest.mark.long
def test_a_query_that_runs_on_follows_the_stream(keyed: Keyed, tmp_path: Path) -> None:
    query = Merging(keyed, tmp_path)
    running = query.start()
    for _ in range(5):
        keyed.write(200)
        until(lambda: query.state == keyed.state)
    running.stop()
    assert len(query.seen) >= 5


@pytest.mark.long
def test_what_does_not_fit_is_said_in_a_line(keyed: Keyed) -> None:
    at = keyed.write(50)
    assert keyed.rows(snapshot=json.dumps({keyed.name: at})) == keyed.state
    plain = f"{keyed.name}-plain"
    keyed.client.streams.create(plain, partitions=1)
    for options, said in (
        ({"snapshot": "true", "startingOffsets": "earliest"}, "startingOffsets does not go with snapshot"),
        ({"snapshot": "yes"}, "snapshot: 'yes' does not fit"),
        ({"snapshot": '{"0": -1, "1": 0}'}, "does not fit"),
        ({"snapshot": '{"0": 1}'}, f"the vector must name the partitions that are read; {keyed.name}-1 is not in both"),
        ({"snapshot": '{"0": 1, "1": 5000}'}, "the newest snapshot is at"),
        ({"snapshot": '{"0": 1}', "subscribe": f"{keyed.name},{plain}"}, "not keyed"),
        ({"snapshot": '{"s": {"0": 1}}'}, "the vector must name the partitions that are read"),
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
