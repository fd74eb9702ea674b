"""Rows of small micro-batches go to Spark with the plan; which they are, and that they are those that a task reads."""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

from duramen.base.errors import ServerUnreachable
from duramen.client import BrokerCluster, Producer, TopicPartition
from duramen.node.process import NodeProcess
from duramen.spark.options import Options
from duramen.spark.read.prefetch import Prefetching
from duramen.spark.read.reader import OffsetSpan, PartitionReader, SpanPartition
from duramen.spark.read.stream import StreamReader

MOST_RECORDS = 2_000
MOST_BYTES = 1 << 20


class Invented(PartitionReader):
    """Records of the same size, one batch for each; none of a partition that cannot be reached."""

    def __init__(self, size: int, unreachable: int | None = None) -> None:
        self.size = size
        self.unreachable = unreachable
        self.looked_at = 0

    def read(self, span: OffsetSpan) -> Iterator[pa.RecordBatch]:
        if span.at.partition == self.unreachable:
            raise ServerUnreachable("nobody answers")
        for offset in range(span.first, span.end):
            self.looked_at += 1
            place = pa.array([[span.at.partition, offset]], pa.list_(pa.int64()))
            yield pa.RecordBatch.from_arrays([place, pa.array([bytes(self.size)])], names=["place", "value"])


def spans(counts: list[int]) -> list[OffsetSpan]:
    return [OffsetSpan(TopicPartition("s", index), "", 7, 7 + count) for index, count in enumerate(counts)]


def places(found: list[pa.RecordBatch]) -> list[list[int]]:
    return [place for batch in found for place in batch.column("place").to_pylist()]


@pytest.mark.long
@given(
    st.lists(st.lists(st.integers(0, 900), min_size=1, max_size=4), min_size=1, max_size=4),
    st.sampled_from([0, 100, 5_000, 300_000]),
    st.none() | st.integers(1, 50),
)
def test_all_rows_or_none_and_never_many(rounds: list[list[int]], size: int, most: int | None) -> None:
    reading = Invented(size)
    ahead = Prefetching(reading, most)
    for counts in rounds:
        before, there = reading.looked_at, sum(counts)
        found = ahead.read(spans(counts))
        looked_at = reading.looked_at - before
        assert looked_at * size <= MOST_BYTES + size
        if found is None:
            assert there == 0 or there > min(MOST_RECORDS, most or MOST_RECORDS) or there * (size + 32) > MOST_BYTES
        else:
            assert 0 < there <= min(MOST_RECORDS, most or MOST_RECORDS)
            assert places(found) == [[index, 7 + at] for index, count in enumerate(counts) for at in range(count)]


def test_what_was_too_large_is_not_tried_again_until_it_is_fewer() -> None:
    reading = Invented(10_000)
    ahead = Prefetching(reading)
    assert ahead.read(spans([500])) is None
    tried = reading.looked_at
    assert 0 < tried < 500
    assert ahead.read(spans([500])) is None
    assert reading.looked_at == tried
    assert places(ahead.read(spans([50])) or []) == [[0, 7 + at] for at in range(50)]


def test_what_cannot_be_read_is_left_to_tasks() -> None:
    assert Prefetching(Invented(1, unreachable=1)).read(spans([3, 3])) is None


@pytest.fixture
def reader(node: NodeProcess, stream: str) -> Callable[..., StreamReader]:
    """Reads the test's stream from its beginning."""

    def make(**options: str) -> StreamReader:
        given = {"kafka.bootstrap.servers": node.kafka, "subscribe": stream, "startingOffsets": "earliest"}
        return StreamReader(Options(given | options, "stream"))

    return make


def hands_over(reader: object) -> bool:
    """Whether PySpark asks for rows."""
    return isinstance(reader, _SimpleStreamReaderWrapper)


def fill(cluster: BrokerCluster, stream: str, count: int) -> None:
    with Producer(cluster) as producer:
        for number in range(count):
            producer.produce(
                stream,
                None if number % 5 == 0 else b"%d" % number,
                key=None if number % 3 == 0 else b"key",
                headers=[(b"n", b"%d" % number), (b"empty", None)] if number % 2 else [],
                partition=number % 4,
            )


def test_one_task_has_the_rows_that_come_with_the_plan(
    cluster: BrokerCluster, stream: str, reader: Callable[..., StreamReader]
) -> None:
    fill(cluster, stream, 40)
    small = reader(includeHeaders="true")
    begin = small.initialOffset()
    end = small.latestOffset(begin, small.getDefaultReadLimit())
    assert not hands_over(small)
    (part,) = small.partitions(begin, end)
    assert hands_over(small)
    handed = small.getCache(begin, end)
    assert not hands_over(small)
    assert handed is not None
    rows = pa.Table.from_batches(list(handed)).to_pylist()
    # What a task reads where Spark has lost the rows, or has stopped and plans again.
    assert rows == pa.Table.from_batches(list(small.read(part))).to_pylist()
    assert len(rows) == 40
    assert small.getCache(begin, end) is None
    assert small.partitions(end, end) == []
    assert not hands_over(small)
    small.stop()


@pytest.mark.parametrize(
    ("options", "tasks"),
    [({"minPartitions": "2"}, 4), ({"maxRecordsPerPartition": "5"}, 8), ({"maxRecordsPerPartition": "40"}, 1)],
)
def test_who_names_the_size_of_tasks_has_it(
    cluster: BrokerCluster, stream: str, reader: Callable[..., StreamReader], options: dict[str, str], tasks: int
) -> None:
    fill(cluster, stream, 40)
    cut = reader(**options)
    begin = cut.initialOffset()
    parts = cut.partitions(begin, cut.latestOffset(begin, cut.getDefaultReadLimit()))
    assert len(parts) == tasks
    assert all(isinstance(one, SpanPartition) for one in parts)
    assert (cut.getCache(begin, begin) is None) == (tasks > 1)
    cut.stop()


@pytest.mark.long
def test_spark_has_the_same_rows_of_small_micro_batches_as_of_a_batch(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream: str, read: Callable[..., DataFrame]
) -> None:
    fill(cluster, stream, 100)
    source = spark.readStream.format("duramen").option("kafka.bootstrap.servers", node.kafka)
    source = source.option("startingOffsets", "earliest").option("includeHeaders", "true")
    found: list[Row] = []
    tasks: list[int] = []

    def collect(batch: DataFrame, _: int) -> None:
        tasks.append(batch.rdd.getNumPartitions())
        found.extend(batch.collect())
        # Asked a second time: the rows are still there.
        assert batch.count() == 25

    frame = source.option("maxOffsetsPerTrigger", "25").load(stream)
    frame.writeStream.foreachBatch(collect).trigger(availableNow=True).start().awaitTermination()
    assert tasks == [1] * 4
    assert sorted(found, key=str) == sorted(read(includeHeaders="true").collect(), key=str)
