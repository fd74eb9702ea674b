"""`spark.read.format("duramen")` against a real node."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Producer as Librdkafka
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from duramen.client import BrokerCluster, Producer, StreamAdmin
from duramen.node.process import NodeProcess

Read = Callable[..., DataFrame]

NOW_MS = int(time.time() * 1000)


def produce(cluster: BrokerCluster, stream: str, count: int, *, codec: int = 0, partitions: int = 4) -> None:
    with Producer(cluster, codec=codec) as producer:
        for number in range(count):
            producer.produce(
                stream, b"value-%d" % number, key=b"%d" % number, partition=number % partitions,
                timestamp_ms=NOW_MS + number,
            )  # fmt: skip


def values(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


class TestRecords:
    @pytest.mark.variants(2)
    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_are_what_was_produced(self, node: NodeProcess, stream: str, read: Read, codec: str) -> None:
        producer = Librdkafka({"bootstrap.servers": node.kafka, "compression.codec": codec, "linger.ms": 20})
        expected = []
        for number in range(2000):
            key = None if number % 7 == 0 else b"key-%d" % number
            value = None if number % 11 == 0 else b"x" * (number % 300)
            every: list[tuple[str, str | bytes | None]] = [("name", b"%d" % number), ("name", None), ("ümlaut", b"")]
            headers = every[: number % 4]
            producer.produce(stream, value, key, number % 4, timestamp=NOW_MS + number, headers=headers)
            expected.append((number % 4, number // 4, key, value, NOW_MS + number, headers or None))
        assert producer.flush(60) == 0
        rows = read(includeHeaders="true").select(
            "*", sf.unix_millis("timestamp").alias("ms")
        ).orderBy("offset", "partition").collect()  # fmt: skip
        assert [
            (row.partition, row.offset, row.key, row.value, row.ms, row.headers and [tuple(one) for one in row.headers])
            for row in rows
        ] == expected
        assert {(row.topic, row.timestampType) for row in rows} == {(stream, 0)}

    def test_have_the_appends_time_where_the_stream_says_so(
        self, cluster: BrokerCluster, read: Read, stream_name: str
    ) -> None:
        StreamAdmin(cluster).create_stream(stream_name, 1, {"message.timestamp.type": "LogAppendTime"})
        produce(cluster, stream_name, 10, partitions=1)
        (row,) = read().select("timestampType", sf.unix_millis("timestamp").alias("ms")).distinct().collect()
        assert row.timestampType == 1
        assert row.ms >= NOW_MS

    def test_of_an_empty_stream_are_none(self, stream: str, read: Read) -> None:
        assert read(subscribe=stream).count() == 0
        assert read(subscribe=stream, minPartitions=8).count() == 0

    def test_schema_is_that_of_sparks_kafka_source(self, stream: str, read: Read) -> None:
        assert read(subscribe=stream, INCLUDEHEADERS="TRUE").schema.simpleString() == (
            "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
            "timestampType:int,headers:array<struct<key:string,value:binary>>>"
        )
        assert "headers" not in read(subscribe=stream).columns


class TestSelection:
    def test_load_is_short_for_subscribe(
        self, spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream: str
    ) -> None:
        produce(cluster, stream, 8)
        reader = spark.read.format("duramen").option("kafka.bootstrap.servers", node.kafka)
        assert reader.load(stream).count() == 8

    @pytest.mark.long
    def test_pattern_matches_a_part_of_a_name(self, cluster: BrokerCluster, read: Read, stream_name: str) -> None:
        for name in ("a1", "a2", "a1x", "b1"):
            StreamAdmin(cluster).create_stream(f"{stream_name}-{name}", 1)
            produce(cluster, f"{stream_name}-{name}", 5, partitions=1)
        for pattern, found in (("-a[0-9]", ["a1", "a1x", "a2"]), ("-a[0-9]$", ["a1", "a2"])):
            frame = read(subscribePattern=f"{stream_name}{pattern}")
            assert frame.groupBy("topic").count().orderBy("topic").collect() == [
                Row(topic=f"{stream_name}-{name}", count=5) for name in found
            ]
        assert read(subscribePattern="nothing-is-called-that").count() == 0

    def test_assign_names_partitions(self, cluster: BrokerCluster, read: Read, stream: str) -> None:
        produce(cluster, stream, 40)
        frame = read(assign=f'{{"{stream}": [1, 3]}}')
        assert frame.groupBy("partition").count().orderBy("partition").collect() == [
            Row(partition=1, count=10), Row(partition=3, count=10)
        ]  # fmt: skip

    def test_tasks_are_split(self, cluster: BrokerCluster, read: Read, stream: str) -> None:
        produce(cluster, stream, 400)
        assert read(subscribe=stream).rdd.getNumPartitions() == 4
        frame = read(subscribe=stream, minPartitions=10)
        assert frame.rdd.getNumPartitions() >= 10
        assert frame.select("partition", "offset").distinct().count() == 400
        assert read(subscribe=stream, maxRecordsPerPartition=30).rdd.getNumPartitions() == 16


class TestColumns:
    def test_are_those_that_are_named_in_their_order(self, cluster: BrokerCluster, read: Read, stream: str) -> None:
        produce(cluster, stream, 8)
        frame = read(subscribe=stream, columns="offset, Value,topic")
        assert frame.schema.simpleString() == "struct<offset:bigint,value:binary,topic:string>"
        rows = [(row.offset, bytes(row.value), row.topic) for row in frame.collect()]
        assert sorted(rows) == sorted((number // 4, b"value-%d" % number, stream) for number in range(8))

    @pytest.mark.long
    def test_need_not_be_of_records(self, cluster: BrokerCluster, read: Read, stream: str) -> None:
        produce(cluster, stream, 10)
        frame = read(subscribe=stream, columns="partition,headers")
        assert sorted(tuple(row) for row in frame.collect()) == [
            (number % 4, None) for number in sorted(range(10), key=lambda n: n % 4)
        ]
        assert read(subscribe=stream, columns="topic").count() == 10


class Place(NamedTuple):
    partition: int
    offset: int
    number: int


@pytest.fixture(params=["pushed", "kept by Spark"])
def pushdown(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether Spark hands filters over."""
    pushed: bool = request.param == "pushed"
    spark.conf.set("spark.sql.python.filterPushdown.enabled", str(pushed).lower())
    yield pushed
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


class TestFilters:
    @pytest.mark.variants(1)
    def test_leave_the_same_records_and_spare_tasks(
        self, cluster: BrokerCluster, read: Read, stream: str, *, pushdown: bool
    ) -> None:
        produce(cluster, stream, 40)
        every = [Place(number % 4, number // 4, number) for number in range(40)]
        for where, kept, tasks in (
            ("partition = 1", lambda one: one.partition == 1, 1),
            ("partition IN (0, 3) AND offset >= 4", lambda one: one.partition in (0, 3) and one.offset >= 4, 2),
            ("offset > 2 AND offset < 5", lambda one: 2 < one.offset < 5, 4),
            ("offset IN (1, 8)", lambda one: one.offset in (1, 8), 4),
            (f"timestamp >= timestamp_millis({NOW_MS + 38})", lambda one: one.number >= 38, 2),
            (f"timestamp < timestamp_millis({NOW_MS + 5})", lambda one: one.number < 5, 4),
            ("partition = 9", lambda _: False, 1),
            (f"topic = '{stream}' AND partition <> 2 AND value IS NOT NULL", lambda one: one.partition != 2, 4),
        ):
            frame = read(subscribe=stream).where(where)
            rows = sorted((row.partition, row.offset, int(bytes(row.value)[6:])) for row in frame.collect())
            assert rows == sorted(one for one in every if kept(one)), where
            assert frame.rdd.getNumPartitions() == (tasks if pushdown else 4), where


class TestOffsets:
    @pytest.mark.variants(2)
    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"startingOffsets": "earliest", "endingOffsets": "latest"}, range(40)),
            ({"startingOffsets": '{"STREAM": {"0": 3, "1": -2, "2": 10, "3": 9}}'},
             [*range(12, 40, 4), *range(1, 40, 4), 39]),
            ({"endingOffsets": '{"STREAM": {"0": 2, "1": 0, "2": -1, "3": 1}}'}, [0, 4, *range(2, 40, 4), 3]),
            ({"startingTimestamp": NOW_MS + 36}, range(36, 40)),
            ({"endingTimestamp": NOW_MS + 2}, [0, 1]),
            ({"endingTimestamp": NOW_MS + 99}, range(40)),
            ({"startingTimestamp": NOW_MS + 99, "startingOffsetsByTimestampStrategy": "latest"}, []),
            ({"startingOffsetsByTimestamp":
              f'{{"STREAM": {{"0": {NOW_MS + 36}, "1": {NOW_MS + 37}, "2": {NOW_MS + 38}, "3": {NOW_MS}}}}}'},
             [36, 37, 38, *range(3, 40, 4)]),
        ],
    )  # fmt: skip
    def test_are_as_in_sparks_kafka_source(
        self, cluster: BrokerCluster, read: Read, stream: str, options: dict[str, object], expected: list[int]
    ) -> None:
        produce(cluster, stream, 40)
        given = {name: str(value).replace("STREAM", stream) for name, value in options.items()}
        assert values(read(subscribe=stream, **given)) == sorted(b"value-%d" % number for number in expected)

    def test_out_of_range_fail_or_are_let_go(self, cluster: BrokerCluster, read: Read, stream_name: str) -> None:
        StreamAdmin(cluster).create_stream(stream_name, 1)
        produce(cluster, stream_name, 10, partitions=1)
        beyond = f'{{"{stream_name}": {{"0": 20}}}}'
        with pytest.raises(AnalysisException, match="has the offsets 0 to 9, and should be read to 19"):
            read(endingOffsets=beyond).count()
        assert read(endingOffsets=beyond, failOnDataLoss="false").count() == 10
        with pytest.raises(AnalysisException, match="has the offsets 0 to 9, and should be read from 20 on"):
            read(startingOffsets=beyond).count()
        assert read(startingOffsets=beyond, failOnDataLoss="false").count() == 0


@pytest.mark.variants(2)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOfsets": "earliest"}, "no option startingofsets here; did you mean startingOffsets?"),
        ({"subscribe": "nobody-made-this"}, "there is no stream nobody-made-this"),
        ({"assign": '{"STREAM": [0, 9]}'}, "there is no partition STREAM-9"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "exactly one of subscribe, subscribePattern, assign is needed"),
        ({"subscribe": " , "}, "subscribe names no stream"),
        ({"subscribePattern": "("}, "is not a regular expression"),
        ({"startingOffsets": "latest"}, "a batch cannot begin at the latest offset"),
        ({"startingOffsets": '{"STREAM": {"0": -1}}'}, "a batch cannot begin at the latest offset"),
        ({"startingOffsets": '{"STREAM": {"0": 0}}'}, "must name every partition; STREAM-1, STREAM-2, STREAM-3 is"),
        ({"startingOffsets": "now"}, "startingOffsets: 'now' does not fit"),
        ({"endingOffsets": "earliest"}, "a batch cannot end at the earliest offset"),
        ({"endingOffsets": '{"STREAM": {"0": -2}}'}, "a batch cannot end at the earliest offset"),
        ({"startingTimestamp": NOW_MS * 2}, "has no record at or after that time"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss: 'maybe' does not fit; it must be true or false"),
        ({"minPartitions": "0"}, "minPartitions: '0' does not fit; it must be a whole number, at least 1"),
        ({"kafka__group__idd": "g"}, "did you mean kafka.group.id?"),
        ({"kafka__auto__offset__reset": "earliest"}, "kafka.auto.offset.reset is not supported"),
        ({"kafka__key__deserializer": "x"}, "kafka.key.deserializer is not supported"),
        ({"kafka__security__protocol": "SSL"}, "no encryption and no authentication yet"),
        ({"kafka__sasl__mechanism": "PLAIN"}, "no encryption and no authentication yet"),
        ({"kafka__bootstrap__servers": "nowhere"}, "'nowhere' is not HOST:PORT"),
    ],
)  # fmt: skip
def test_bad_options_say_what_is_wrong_in_one_line(
    cluster: BrokerCluster, read: Read, stream: str, options: dict[str, object], message: str
) -> None:
    produce(cluster, stream, 4)
    given = {name: str(value).replace("STREAM", stream) for name, value in options.items()}
    with pytest.raises(AnalysisException) as caught:
        read(**given).count()
    said = str(caught.value)
    assert message.replace("STREAM", stream) in said
    assert "Traceback" not in said


def test_a_schema_of_ones_own_is_refused(spark: SparkSession, node: NodeProcess, stream: str) -> None:
    for schema in ("value STRING", "value BINARY, other INT"):
        reader = spark.read.format("duramen").option("kafka.bootstrap.servers", node.kafka).schema(schema)
        with pytest.raises(AnalysisException, match="has its own schema"):
            reader.load(stream).count()


@pytest.mark.long
def test_a_schema_of_some_columns_is_taken_for_the_option(
    cluster: BrokerCluster, spark: SparkSession, node: NodeProcess, stream: str
) -> None:
    produce(cluster, stream, 4)
    reader = spark.read.format("duramen").option("kafka.bootstrap.servers", node.kafka)
    frame = reader.schema("offset BIGINT, value BINARY").load(stream)
    assert frame.columns == ["offset", "value"]
    assert {tuple(row) for row in frame.collect()} == {
        tuple(row) for row in reader.option("columns", "offset,value").load(stream).collect()
    }


def test_an_unreachable_broker_is_named_within_the_timeout(read: Read) -> None:
    began = time.monotonic()
    with pytest.raises(AnalysisException, match=r"no broker answered within 1 s: 127\.0\.0\.1:1 cannot be reached"):
        read(kafka__bootstrap__servers="127.0.0.1:1", kafka__request__timeout__ms=1000).count()
    assert time.monotonic() - began < 60


@pytest.mark.variants(1)
@pytest.mark.parametrize("again", [False, True])
def test_a_stream_deleted_between_planning_and_reading_is_missed(
    cluster: BrokerCluster, read: Read, stream: str, *, again: bool
) -> None:
    produce(cluster, stream, 4)
    frame, lenient = read(subscribe=stream), read(subscribe=stream, failOnDataLoss="false")
    # All columns: what a frame takes whole is planned once.
    assert len(frame.collect()) == len(lenient.collect()) == 4
    StreamAdmin(cluster).delete_stream(stream)
    if again:
        StreamAdmin(cluster).create_stream(stream, 4)
        produce(cluster, stream, 8)
    why = "was deleted and created again" if again else f"there is no stream {stream}"
    with pytest.raises(PythonException, match=f"RecordsLost: .*: records before 1 are gone: .*{why}") as caught:
        frame.collect()
    assert "Traceback" not in str(caught.value)
    assert lenient.collect() == []
