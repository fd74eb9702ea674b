"""`spark.readStream.format("duramen")` against a real node."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.clients import metric, until

from duramen.base.errors import CheckpointInvalid, RecordsLost, ServerUnreachable
from duramen.client import BrokerCluster, Consumer, Producer, StreamAdmin, TopicPartition
from duramen.client.consumer import EARLIEST
from duramen.client.coordinator import GroupCoordinatorClient
from duramen.node.process import NodeProcess
from duramen.spark.options import Options
from duramen.spark.read.stream import StreamReader

_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


class Copying:
    """A query that copies a stream into a Parquet table and ends when it has caught up, run once and again."""

    def __init__(self, spark: SparkSession, node: NodeProcess, directory: Path) -> None:
        self._spark = spark
        self._servers = node.kafka
        self._checkpoint = str(directory / "checkpoint")
        self._table = str(directory / "table")

    def run(self, *, name: str | None = None, **options: object) -> list[dict[str, Any]]:
        """Returns the progress of each micro-batch with data."""
        reader = self._spark.readStream.format("duramen").option("kafka.bootstrap.servers", self._servers)
        for option, value in ({"startingOffsets": "earliest"} | options).items():
            reader = reader.option(option.replace("__", "."), str(value))
        writer = reader.load().selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS value").writeStream
        query = (
            (writer if name is None else writer.queryName(name))
            .format("parquet")
            .option("checkpointLocation", self._checkpoint)
            .option("path", self._table)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [json.loads(one.json) for one in query.recentProgress if one.numInputRows]

    def values(self) -> list[str]:
        return sorted(row.value for row in self._spark.read.parquet(self._table).collect())


@pytest.fixture
def copying(spark: SparkSession, node: NodeProcess, tmp_path: Path) -> Copying:
    return Copying(spark, node, tmp_path)


def produce(cluster: BrokerCluster, stream: str, first: int, end: int, partitions: int = 4) -> None:
    with Producer(cluster) as producer:
        for number in range(first, end):
            producer.produce(stream, b"%06d" % number, partition=number % partitions)


def numbers(*spans: range) -> list[str]:
    return sorted(f"{number:06}" for span in spans for number in span)


def test_goes_on_from_its_checkpoint_in_steps_of_the_limit(
    cluster: BrokerCluster, stream: str, copying: Copying
) -> None:
    produce(cluster, stream, 0, 400)
    steps = copying.run(subscribe=stream, maxOffsetsPerTrigger=300)
    assert [step["numInputRows"] for step in steps] == [300, 100]
    end = json.loads(json.dumps(steps[-1]["sources"][0]["endOffset"]))
    assert {name: end[stream][name] for name in "0123"} == {"0": 100, "1": 100, "2": 100, "3": 100}
    assert steps[-1]["sources"][0]["latestOffset"] == end
    assert copying.values() == numbers(range(400))
    produce(cluster, stream, 400, 500)
    copying.run(subscribe=stream)
    assert copying.values() == numbers(range(500))
    assert copying.run(subscribe=stream) == []


@pytest.mark.long
def test_new_partitions_and_new_streams_begin_at_their_beginning(
    node: NodeProcess, cluster: BrokerCluster, stream_name: str, copying: Copying
) -> None:
    StreamAdmin(cluster).create_stream(f"{stream_name}-1", 2)
    produce(cluster, f"{stream_name}-1", 0, 100, 2)
    copying.run(subscribePattern=f"{stream_name}-.", startingOffsets="latest")
    assert copying.values() == []
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.create_partitions([NewPartitions(f"{stream_name}-1", 4)])[f"{stream_name}-1"].result(60)
    cluster.forget_all()
    produce(cluster, f"{stream_name}-1", 100, 200, 4)
    StreamAdmin(cluster).create_stream(f"{stream_name}-2", 1)
    produce(cluster, f"{stream_name}-2", 200, 250, 1)
    copying.run(subscribePattern=f"{stream_name}-.", startingOffsets="latest", maxOffsetsPerTrigger=40)
    assert copying.values() == numbers(range(100, 250))


@pytest.mark.long
def test_begins_where_it_is_told_and_only_the_first_time(cluster: BrokerCluster, stream: str, copying: Copying) -> None:
    produce(cluster, stream, 0, 40)
    offsets = json.dumps({stream: {"0": 9, "1": -1, "2": -2, "3": 0}})
    expected = [36, *range(2, 40, 4), *range(3, 40, 4)]
    copying.run(subscribe=stream, startingOffsets=offsets, includeHeaders="true")
    assert copying.values() == sorted(f"{number:06}" for number in expected)
    produce(cluster, stream, 40, 60)
    copying.run(subscribe=stream, startingOffsets="earliest")
    assert copying.values() == sorted(f"{number:06}" for number in [*expected, *range(40, 60)])


def test_waits_until_there_is_enough_or_it_has_waited_long_enough(
    node: NodeProcess, cluster: BrokerCluster, stream: str
) -> None:
    def reader(**options: str) -> StreamReader:
        given = {"kafka.bootstrap.servers": node.kafka, "subscribe": stream, "startingOffsets": "earliest"}
        return StreamReader(Options(given | options, "stream"))

    patient = reader(minOffsetsPerTrigger="10", maxOffsetsPerTrigger="30")
    limit = patient.getDefaultReadLimit()
    begin = patient.initialOffset()
    assert patient.latestOffset(begin, limit) == begin
    produce(cluster, stream, 0, 9)
    assert patient.latestOffset(begin, limit) == begin
    assert patient.partitions(begin, begin) == []
    produce(cluster, stream, 9, 100)
    upto = patient.latestOffset(begin, limit)
    assert sum(upto[stream][index] for index in "0123") == 30
    assert patient.reportLatestOffset() == begin | {stream: begin[stream] | dict.fromkeys("0123", 25)}
    hasty = reader(minOffsetsPerTrigger="1000", maxTriggerDelay="1ms")
    while hasty.latestOffset(begin, hasty.getDefaultReadLimit()) == begin:
        pass
    patient.stop()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.long
def test_a_stream_that_is_deleted_is_noticed(
    cluster: BrokerCluster, stream: str, copying: Copying, *, again: bool
) -> None:
    other = f"{stream}-other"
    StreamAdmin(cluster).create_stream(other, 1)
    produce(cluster, other, 1000, 1010, 1)
    produce(cluster, stream, 0, 100)
    both = f"{stream},{other}"
    copying.run(subscribe=both)
    StreamAdmin(cluster).delete_stream(stream)
    if again:
        # As many records as before: only its id says that it is another stream.
        StreamAdmin(cluster).create_stream(stream, 4)
        produce(cluster, stream, 100, 200)
    produce(cluster, other, 1010, 1020, 1)
    why = (
        f"stream {stream} was deleted and created again at {_TIME}: what was not read"
        if again
        else f"{stream}-0, {stream}-1, .* is not there any more: deleted before this query began at {_TIME}"
    )
    with pytest.raises(StreamingQueryException, match=f"RecordsLost: {why}") as caught:
        copying.run(subscribe=both)
    assert "Traceback" not in str(caught.value)
    copying.run(subscribe=both, failOnDataLoss="false")
    assert copying.values() == numbers(range(200 if again else 100), range(1000, 1020))


@pytest.mark.long
def test_what_retention_took_is_noticed(
    new_node: Callable[..., NodeProcess], spark: SparkSession, tmp_path: Path
) -> None:
    with new_node({"log.retention.check.interval.ms": 50}) as node, BrokerCluster(node.kafka) as cluster:
        config = {"retention.records": "100", "segment.bytes": "2000"}
        StreamAdmin(cluster).create_stream("short", 1, config)
        copying = Copying(spark, node, tmp_path)
        produce(cluster, "short", 0, 50, 1)
        copying.run(subscribe="short")
        for step in range(50, 1000, 50):
            produce(cluster, "short", step, step + 50, 1)
        wait_until_gone(cluster, TopicPartition("short", 0), 50)
        why = rf"short-0: the records 50 to \d+ are gone: its log begins at \d+ since {_TIME} \(retention, or deleted"
        with pytest.raises(StreamingQueryException, match=why):
            copying.run(subscribe="short")
        copying.run(subscribe="short", failOnDataLoss="false")
        values = copying.values()
        assert values[:50] == numbers(range(50))
        assert values[50:] == numbers(range(1050 - len(values), 1000))
        assert 100 <= len(values[50:]) < 950


def wait_until_gone(cluster: BrokerCluster, at: TopicPartition, offset: int) -> None:
    deadline = time.monotonic() + 60
    while Consumer(cluster).offsets({at: EARLIEST})[at] <= offset:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.variants(1)
@pytest.mark.parametrize("by_id", [True, False])
def test_what_is_processed_is_the_offset_of_a_consumer_group(
    node: NodeProcess, cluster: BrokerCluster, stream: str, copying: Copying, *, by_id: bool
) -> None:
    produce(cluster, stream, 0, 400)
    group, name = f"{stream}-group", f"{stream}-name"
    expected, other = (group, name) if by_id else (name, group)
    options: dict[str, Any] = {"kafka__group__id": group} if by_id else {}
    copying.run(subscribe=stream, name=name, maxOffsetsPerTrigger=200, **options)
    coordinator = GroupCoordinatorClient(cluster, expected)
    ats = [TopicPartition(stream, index) for index in range(4)]
    # With what the last micro-batch has processed.
    until(lambda: coordinator.committed(ats) == dict.fromkeys(ats, 100))
    tool = AdminClient({"bootstrap.servers": node.kafka})
    assert expected in {found.group_id for found in tool.list_consumer_groups().result(60).valid}
    produce(cluster, stream, 400, 404)
    labels = {"group": expected, "stream": stream, "partition": "0"}
    until(lambda: metric(node, "duramen_group_lag_records", **labels) == 1)
    assert 0 <= metric(node, "duramen_group_lag_seconds", **labels) < 3600
    copying.run(subscribe=stream, name=name, **options)
    until(lambda: metric(node, "duramen_group_lag_records", **labels) == 0)
    assert GroupCoordinatorClient(cluster, other).committed(ats) == {}


def test_without_the_listener_a_group_is_a_micro_batch_behind(
    node: NodeProcess, cluster: BrokerCluster, stream: str
) -> None:
    produce(cluster, stream, 0, 4)
    given = {"kafka.bootstrap.servers": node.kafka, "subscribe": stream, "kafka.group.id": f"{stream}-group"}
    reader = StreamReader(Options(given | {"startingOffsets": "earliest"}, "stream"))
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    reader.commit(end)
    ats = [TopicPartition(stream, index) for index in range(4)]
    assert GroupCoordinatorClient(cluster, f"{stream}-group").committed(ats) == dict.fromkeys(ats, 1)


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is for batches: a streaming query has no end"),
        ({"minOffsetsPerTrigger": 2, "maxOffsetsPerTrigger": 1}, "minOffsetsPerTrigger is larger than"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay: 'soon' does not fit"),
        ({"subscribe": "nobody-made-this"}, "there is no stream nobody-made-this"),
    ],
)
def test_bad_options_say_what_is_wrong_in_one_line(
    stream: str, copying: Copying, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(StreamingQueryException) as caught:
        copying.run(**({"subscribe": stream} | options))
    assert message in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_an_unreachable_broker_is_named_within_the_timeout() -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "s", "kafka.request.timeout.ms": "500"}
    reader = StreamReader(Options(given, "stream"))
    with pytest.raises(ServerUnreachable, match=r"no broker answered within 0\.5 s: 127\.0\.0\.1:1 cannot be reached"):
        reader.initialOffset()


class TestCheckpoints:
    """The reader without Spark: what it makes of offsets that it did not write."""

    @pytest.fixture
    def reader(self, node: NodeProcess, stream: str) -> StreamReader:
        return StreamReader(Options({"kafka.bootstrap.servers": node.kafka, "subscribe": stream}, "stream"))

    @pytest.mark.parametrize(
        ("document", "said"),
        [
            ({"STREAM": {"0": 7, "1": 8}}, 'no version, .* startingOffsets={"STREAM": {"0": 7, "1": 8}}'),
            ({"$version": 2, "STREAM": {"0": 7}}, "have the version 2, but version 1 is required"),
            ({"$version": 1, "other": {"0": 7, "id": ""}}, "the checkpoint is of other, but the query reads STREAM"),
            ({"$version": 1, "STREAM": {"0": "many"}}, "the checkpoint's offsets cannot be read"),
            ({"$version": 1, "STREAM": [7]}, "the checkpoint's offsets cannot be read"),
            ({"logOffset": 3}, "no version"),
            (17, "the checkpoint is of another source: it has 17 for offsets"),
        ],
    )
    def test_of_others_are_refused(self, reader: StreamReader, stream: str, document: Any, said: str) -> None:
        given = json.loads(json.dumps(document).replace("STREAM", stream))
        said = said.replace("STREAM", stream)
        with pytest.raises(CheckpointInvalid, match=said):
            reader.latestOffset(given, reader.getDefaultReadLimit())
        with pytest.raises(CheckpointInvalid, match=said):
            reader.partitions(given, reader.initialOffset())
        with pytest.raises(CheckpointInvalid, match=said):
            reader.partitions(reader.initialOffset(), given)

    def test_with_fewer_streams_are_said_to_have_lost_some(
        self, node: NodeProcess, cluster: BrokerCluster, stream: str
    ) -> None:
        other = f"{stream}-other"
        StreamAdmin(cluster).create_stream(other, 1)
        given = {"kafka.bootstrap.servers": node.kafka, "startingOffsets": "earliest"}
        both = StreamReader(Options(given | {"subscribe": f"{stream},{other}"}, "stream"))
        one = StreamReader(Options(given | {"subscribe": stream}, "stream"))
        with pytest.raises(RecordsLost, match=f"{other}-0 is not among what the options name any more"):
            one.latestOffset(both.initialOffset(), one.getDefaultReadLimit())

    def test_a_stream_that_goes_meanwhile_was_there_a_moment_ago(
        self, reader: StreamReader, cluster: BrokerCluster, stream: str
    ) -> None:
        begin = reader.initialOffset()
        assert reader.latestOffset(begin, reader.getDefaultReadLimit()) == begin
        StreamAdmin(cluster).delete_stream(stream)
        with pytest.raises(
            RecordsLost, match=f"{stream}-0, .* is not there any more: deleted after {_TIME}, when it was"
        ):
            reader.latestOffset(begin, reader.getDefaultReadLimit())
