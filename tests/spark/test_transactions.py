"""Reading streams that are written in transactions, by unmodified producers: a batch has each wholly or not at all."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer as Librdkafka
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, LessThan
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.clients import until

from duramen.client import BrokerCluster, Producer
from duramen.client.connection import BrokerConnection
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess
from duramen.spark.datasource import BatchReader, FilteringReader
from duramen.spark.options import Options
from duramen.spark.read.reader import SpanPartition
from duramen.spark.read.stream import StreamReader

_S = 60.0
PARTITIONS = 4


class Writers:
    """Transactional producers whose transactions interleave; the value of each record names its transaction."""

    def __init__(self, servers: str, stream: str, count: int = 3) -> None:
        self.stream = stream
        self.random = random.Random(7)
        self.producers = [
            Librdkafka(
                {
                    "bootstrap.servers": servers,
                    "transactional.id": f"{stream}-{index}",
                    "linger.ms": 0,
                    "transaction.timeout.ms": 900_000,  # queries run while a transaction is open
                }
            )
            for index in range(count)
        ]
        self.committed: Counter[str] = Counter()
        self.written: dict[int, Counter[str]] = {}
        self.begun = 0
        for producer in self.producers:
            producer.init_transactions(_S)

    def step(self) -> None:
        index = self.random.randrange(len(self.producers))
        producer, written = self.producers[index], self.written.get(index)
        if written is None:
            producer.begin_transaction()
            self.begun += 1
            self.written[index] = Counter({f"t{self.begun}": 0})
        elif sum(written.values()) > 2 and self.random.random() < 0.3:
            self.end(index, commit=self.random.random() < 0.7)
        else:
            (name,) = written
            producer.produce(self.stream, name.encode(), partition=self.random.randrange(PARTITIONS))
            producer.flush(_S)
            written[name] += 1

    def end(self, index: int, *, commit: bool) -> None:
        written = self.written.pop(index)
        if commit:
            self.producers[index].commit_transaction(_S)
            self.committed += written
        else:
            self.producers[index].abort_transaction(_S)

    def end_all(self) -> None:
        for index in list(self.written):
            self.end(index, commit=True)


@pytest.fixture
def writers(node: NodeProcess, stream: str) -> Iterator[Writers]:
    found = Writers(node.kafka, stream)
    yield found
    found.end_all()


def plain(cluster: BrokerCluster, stream: str, count: int) -> None:
    with Producer(cluster) as producer:
        for number in range(count):
            producer.produce(stream, b"p", partition=number % PARTITIONS)


class Batches:
    """A streaming query: the values of each micro-batch."""

    def __init__(self, spark: SparkSession, servers: str, stream: str, directory: Path) -> None:
        self.reader = (
            spark.readStream.format("duramen")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", stream)
            .option("maxOffsetsPerTrigger", 7)
            .option("minPartitions", 6)
        )
        self.directory = directory
        self.found: dict[int, Counter[str]] = {}

    def run(self, **options: object) -> None:
        """Read on from the checkpoint as far as a transaction allows."""
        self._writing(**options).trigger(availableNow=True).start().awaitTermination()

    def start(self) -> StreamingQuery:
        """Read on from the checkpoint until the query is stopped."""
        return self._writing().start()

    def _writing(self, **options: object) -> DataStreamWriter:
        reader = self.reader
        for name, value in ({"startingOffsets": "earliest"} | options).items():
            reader = reader.option(name.replace("__", "."), str(value))
        return (
            reader.load()
            .selectExpr("CAST(value AS STRING) AS value")
            .writeStream.foreachBatch(self.take)
            .option("checkpointLocation", str(self.directory / "checkpoint"))
        )

    def take(self, batch: DataFrame, number: int) -> None:
        found = Counter(row.value for row in batch.collect())
        assert self.found.setdefault(number, found) == found, "a batch that is planned again is the same"

    def judge(self, committed: Counter[str]) -> Counter[str]:
        """Raise unless each transaction is wholly in one batch; what they have together."""
        for found in self.found.values():
            for name, count in found.items():
                assert name == "p" or count == committed[name], f"{name} is there in part, or not committed"
        return sum(self.found.values(), Counter())


@pytest.mark.long
def test_a_micro_batch_never_has_a_part_of_a_transaction(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream: str, writers: Writers, tmp_path: Path
) -> None:
    query = Batches(spark, node.kafka, stream, tmp_path)
    for _ in range(3):
        for _ in range(40):
            writers.step()
        plain(cluster, stream, 8)
        query.run()
        query.judge(writers.committed)
    writers.end_all()
    query.run()
    together = query.judge(writers.committed)
    assert together.pop("p") == 24
    assert together == writers.committed
    assert len(query.found) > 6, "the limit is kept as far as transactions allow"


def test_a_running_query_follows_transactions_as_they_are_written(
    spark: SparkSession, node: NodeProcess, stream: str, writers: Writers, tmp_path: Path
) -> None:
    query = Batches(spark, node.kafka, stream, tmp_path)
    running = query.start()
    for _ in range(120):
        writers.step()
    writers.end_all()
    until(lambda: sum(query.found.values(), Counter()).total() >= writers.committed.total(), 2 * _S)
    running.stop()
    assert query.judge(writers.committed) == writers.committed


@pytest.mark.long
def test_a_batch_that_failed_is_read_again_with_the_same_records(
    spark: SparkSession, node: NodeProcess, stream: str, writers: Writers, tmp_path: Path
) -> None:
    for _ in range(60):
        writers.step()
    query = Batches(spark, node.kafka, stream, tmp_path)
    take = query.take

    def failing(batch: DataFrame, number: int) -> None:
        take(batch, number)
        if number == 2:
            raise RuntimeError("the sink is gone")

    query.take = failing  # type: ignore[method-assign]
    with pytest.raises(Exception, match="the sink is gone"):
        query.run()
    for _ in range(20):
        writers.step()
    writers.end_all()
    query.take = take  # type: ignore[method-assign]
    query.run()
    assert query.judge(writers.committed) == writers.committed


@pytest.mark.long
def test_a_query_from_the_latest_offset_shows_what_begins_then(
    spark: SparkSession, node: NodeProcess, stream: str, writers: Writers, tmp_path: Path
) -> None:
    for _ in range(40):
        writers.step()
    while not writers.written:
        writers.step()
    query = Batches(spark, node.kafka, stream, tmp_path)
    query.run(startingOffsets="latest")
    begun = writers.begun
    for _ in range(60):
        writers.step()
    writers.end_all()
    query.run(startingOffsets="latest")
    later = Counter({name: count for name, count in writers.committed.items() if int(name[1:]) > begun})
    assert query.judge(writers.committed) == later


def test_a_batch_read_has_what_is_committed(
    read: Callable[..., DataFrame], stream: str, cluster: BrokerCluster, writers: Writers
) -> None:
    plain(cluster, stream, 4)
    for _ in range(50):
        writers.step()

    def values(**options: object) -> Counter[str]:
        return Counter(bytes(row.value).decode() for row in read(**options).collect())

    found = values(minPartitions=9)
    assert found == writers.committed + Counter(p=4)
    assert values(kafka__isolation__level="read_uncommitted").total() > found.total()
    named = {stream: dict.fromkeys("0123", 3)}
    below = read(startingOffsets=str(named).replace("'", '"')).selectExpr("min(offset) AS low").collect()
    assert below[0].low >= 3


def test_brokers_that_cannot_say_where_transactions_ended_are_read_up_to_what_is_stable(
    node: NodeProcess, stream: str, writers: Writers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(30):
        writers.step()
    request = BrokerConnection.request

    def foreign(self: BrokerConnection, api: ApiKey, message: Message, *, wait_s: float = 0.0) -> Message:
        if api is ApiKey.DESCRIBE_PRODUCERS:
            message = {"topics": [{**topic, "marked_from": ()} for topic in message["topics"]]}
        return request(self, api, message, wait_s=wait_s)

    monkeypatch.setattr(BrokerConnection, "request", foreign)
    options = Options({"kafka.bootstrap.servers": node.kafka, "subscribe": stream}, "batch")
    reader = BatchReader(options)
    found: Counter[str] = Counter()
    for partition in reader.partitions():
        for batch in reader.read(partition):
            found += Counter(value.decode() for value in batch.column("value").to_pylist())
    assert found <= writers.committed
    assert len([one for one in caplog.records if "as with Kafka" in one.message]) == 1


def test_without_transactions_a_micro_batch_takes_one_small_request_more(
    cluster: BrokerCluster, stream: str, node: NodeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = BrokerConnection.request
    asked: list[Message] = []

    def counting(self: BrokerConnection, api: ApiKey, message: Message, *, wait_s: float = 0.0) -> Message:
        asked.extend([message] if api is ApiKey.DESCRIBE_PRODUCERS else [])
        return request(self, api, message, wait_s=wait_s)

    monkeypatch.setattr(BrokerConnection, "request", counting)
    plain(cluster, stream, 100)
    options = {"kafka.bootstrap.servers": node.kafka, "subscribe": stream, "startingOffsets": "earliest"}
    reader = StreamReader(Options(options, "stream"))
    start = reader.initialOffset()
    assert set(start[stream]) == {"0", "1", "2", "3", "id"}
    for count in (25, 27):
        asked.clear()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        parts = [one for one in reader.partitions(start, end) if isinstance(one, SpanPartition)]
        spans = [span for one in parts for span in one.spans]
        assert [(one.share, one.committed, one.end) for one in spans] == [(None, False, count)] * PARTITIONS
        assert len(asked) == 1
        assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
        assert len(asked) == 1, "nothing new: nothing to ask"
        start = end
        plain(cluster, stream, 8)
    reader.stop()


Row = tuple[int, int, datetime]


def rows(reader: BatchReader) -> set[Row]:
    """Partition, offset and timestamp of all that a batch reads."""
    found = [
        (row["partition"], row["offset"], row["timestamp"])
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]
    assert len(found) == len(set(found))
    return set(found)


def test_filters_that_are_handed_over_leave_whole_transactions_what_they_are(
    node: NodeProcess, cluster: BrokerCluster, writers: Writers
) -> None:
    for _ in range(6):
        plain(cluster, writers.stream, PARTITIONS)
        for _ in range(15):
            writers.step()
    options = Options({"kafka.bootstrap.servers": node.kafka, "subscribe": writers.stream}, "batch")
    every = rows(BatchReader(options))
    times = sorted(time for _, _, time in every)
    cases: list[tuple[Filter, Callable[[Row], bool]]] = [
        (EqualTo(("partition",), 2), lambda row: row[0] == 2),
        *((LessThan(("offset",), at), lambda row, at=at: row[1] < at) for at in range(0, 40, 6)),
        *((GreaterThanOrEqual(("offset",), at), lambda row, at=at: row[1] >= at) for at in range(0, 40, 6)),
        *((GreaterThan(("timestamp",), at), lambda row, at=at: row[2] > at) for at in times[::9]),
    ]
    for one, passes in cases:
        reader = FilteringReader(options)
        unmet = list(reader.pushFilters([one]))
        found = rows(reader)
        assert {row for row in found if passes(row)} == {row for row in every if passes(row)}, one
        assert unmet or all(map(passes, found)), one
    # Offsets name every partition, whichever of them a filter leaves.
    offsets = json.dumps({writers.stream: {str(index): 0 for index in range(PARTITIONS)}})
    given = {"kafka.bootstrap.servers": node.kafka, "subscribe": writers.stream, "startingOffsets": offsets}
    reader = FilteringReader(Options(given, "batch"))
    assert not list(reader.pushFilters([EqualTo(("partition",), 2)]))
    assert rows(reader) == {row for row in rows(BatchReader(Options(given, "batch"))) if row[0] == 2}
