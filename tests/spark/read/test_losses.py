"""Records that are gone: which, why, and since when, as readers say it without Spark."""

import re
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from confluent_kafka.admin import AdminClient
from tests.clients import until

from duramen.base.errors import RecordsLost, StreamNotFound
from duramen.client import BrokerCluster, Consumer, Producer, StreamAdmin, TopicPartition
from duramen.node.process import NodeProcess
from duramen.spark.datasource import BatchReader
from duramen.spark.options import Options
from duramen.spark.read.losses import made_anew, moment, not_there
from duramen.spark.read.reader import SpanPartition
from duramen.spark.read.stream import StreamReader

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
WRITTEN_MS = 1_700_000_000_000
WRITTEN = "2023-11-14T22:13:20Z"


@pytest.fixture
def own(new_node: Callable[..., NodeProcess]) -> Iterator[NodeProcess]:
    """A node with a stream of one partition, of whose ten records the first four were deleted."""
    node = new_node().start()
    with BrokerCluster(node.kafka) as cluster, Producer(cluster) as producer:
        StreamAdmin(cluster).create_stream("flights", 1)
        for number in range(10):
            producer.produce("flights", b"%d" % number, partition=0, timestamp_ms=WRITTEN_MS)
        producer.flush()
    tool = AdminClient({"bootstrap.servers": node.kafka})
    (deleted,) = tool.delete_records([LibrdkafkaPartition("flights", 0, 4)]).values()
    deleted.result(60)
    yield node
    node.stop()


def given(node: NodeProcess, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": node.kafka, "subscribe": "flights", **more}


def test_a_start_that_moved_is_said_with_its_time_and_later_with_the_first_record(own: NodeProcess) -> None:
    named = given(own, startingOffsets='{"flights": {"0": 1}}')
    gone = "flights-0: the records 1 to 3 are gone: its log begins at 4"
    lacks = "flights-0 has the offsets 4 to 9, and should be read from 1 on: its log begins at 4"
    with pytest.raises(RecordsLost, match=rf"^{lacks} since {TIME} \(retention, or deleted records\); with"):
        BatchReader(Options(named, "batch")).partitions()
    parts = BatchReader(Options(named | {"failOnDataLoss": "false"}, "batch")).partitions()
    spans = [one for part in parts if isinstance(part, SpanPartition) for one in part.spans]
    assert [(one.first, one.end) for one in spans] == [(4, 10)]
    streaming = StreamReader(Options(named, "stream"))
    begin = streaming.initialOffset()
    (part,) = streaming.partitions(begin, streaming.latestOffset(begin, streaming.getDefaultReadLimit()))
    with pytest.raises(RecordsLost, match=rf"^{gone} since {TIME}"):
        list(streaming.read(part))
    streaming.stop()
    # The node that starts again does not know when it was.
    own.stop()
    own.start()
    named = given(own, startingOffsets='{"flights": {"0": 1}}')
    with pytest.raises(RecordsLost, match=rf"^{lacks}, with a record of {WRITTEN} \(retention, or deleted records\)"):
        BatchReader(Options(named, "batch")).partitions()


@pytest.mark.long
def test_what_retention_deleted_as_soon_as_it_was_written_is_said_as_such(
    new_node: Callable[..., NodeProcess], caplog: pytest.LogCaptureFixture
) -> None:
    node = new_node({"log.retention.check.interval.ms": 50}).start()
    why = (
        "retention deleted 10 records soon after they were written, because their timestamps, the newest"
        f" {WRITTEN}, were older than retention.ms"
    )
    with BrokerCluster(node.kafka) as cluster, Producer(cluster) as producer:
        StreamAdmin(cluster).create_stream("flights", 1)
        for number in range(10):
            producer.produce("flights", b"%d" % number, partition=0, timestamp_ms=WRITTEN_MS)
        producer.flush()
        at = TopicPartition("flights", 0)
        until(lambda: Consumer(cluster).bounds([at])[at] == (10, 10))
        producer.produce("flights", b"new", partition=0)
        producer.flush()
    named = given(node, startingOffsets='{"flights": {"0": 1}}')
    with pytest.raises(RecordsLost, match=rf"its log begins at 10 since {TIME} \({why}\); with"):
        BatchReader(Options(named, "batch")).partitions()
    # Who reads from the beginning lacks nothing that was there, and is told what is not.
    assert BatchReader(Options(given(node), "batch")).partitions()
    reader = StreamReader(Options(given(node, startingOffsets="earliest"), "stream"))
    reader.initialOffset()
    reader.stop()
    said = f"flights-0: reading begins at 10: {why}"
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [said, said]


def test_what_goes_on_with_what_there_is_has_nothing_of_what_is_gone(own: NodeProcess) -> None:
    """The batch in which the log begins has deleted records, too."""
    named = given(own, startingOffsets='{"flights": {"0": 1}}', failOnDataLoss="false")
    reader = StreamReader(Options(named, "stream"))
    begin = reader.initialOffset()
    (part,) = reader.partitions(begin, reader.latestOffset(begin, reader.getDefaultReadLimit()))
    assert [row["offset"] for batch in reader.read(part) for row in batch.to_pylist()] == list(range(4, 10))
    reader.stop()


@pytest.mark.long
def test_a_new_partition_that_has_lost_some_is_no_silent_start(own: NodeProcess) -> None:
    reader = StreamReader(Options(given(own), "stream"))
    with pytest.raises(
        RecordsLost, match=rf"^flights has a new partition; flights-0: the records 0 to 3 .* since {TIME}"
    ):
        reader.latestOffset({"$version": 1, "flights": {}}, reader.getDefaultReadLimit())
    reader.stop()


def test_a_log_that_ends_earlier_has_no_time(own: NodeProcess) -> None:
    reader = StreamReader(Options(given(own), "stream"))
    begin = reader.initialOffset()
    (part,) = reader.partitions(
        {**begin, "flights": begin["flights"] | {"0": 15}}, {**begin, "flights": begin["flights"] | {"0": 20}}
    )
    with pytest.raises(RecordsLost, match=r"^flights-0: the records 15 to 19 are gone: its log ends at 10 now; with"):
        list(reader.read(part))
    reader.stop()


def test_another_stream_of_that_name_is_said_with_its_birth(own: NodeProcess) -> None:
    with BrokerCluster(own.kafka) as cluster:
        consumer, before = Consumer(cluster), cluster.topic("flights").id
        error = StreamNotFound("there is no stream flights")
        assert not_there(consumer, "flights", before, error) == str(error)
        StreamAdmin(cluster).delete_stream("flights")
        assert not_there(consumer, "flights", before, error) == str(error)
        StreamAdmin(cluster).create_stream("flights", 1)
        said = not_there(consumer, "flights", before, error)
        assert re.fullmatch(f"stream flights was deleted and created again at {TIME}", said)
        assert said == made_anew(consumer, "flights")
        assert not_there(consumer, "flights", None, error) == str(error)
        StreamAdmin(cluster).delete_stream("flights")
        assert made_anew(consumer, "flights") == "stream flights was deleted and created again"


def test_a_stream_made_again_with_fewer_partitions_is_another_one_and_lacks_none(own: NodeProcess) -> None:
    with BrokerCluster(own.kafka) as cluster:
        StreamAdmin(cluster).create_stream("wide", 3)
        reader = StreamReader(Options(given(own, subscribe="wide"), "stream"))
        begin = reader.initialOffset()
        StreamAdmin(cluster).delete_stream("wide")
        StreamAdmin(cluster).create_stream("wide", 1)
        with pytest.raises(RecordsLost, match=rf"^stream wide was deleted and created again at {TIME}: what was not"):
            reader.latestOffset(begin, reader.getDefaultReadLimit())
        reader.stop()


def test_times_for_people() -> None:
    assert moment(WRITTEN_MS) == WRITTEN
    assert moment(1 << 62) == f"{1 << 62} ms"
