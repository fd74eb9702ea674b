"""`df.write.format("duramen")` and `df.writeStream`, read back by an unchanged client."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer as Librdkafka
from confluent_kafka import Message, TopicPartition
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from duramen.client import BrokerCluster, Consumer, Producer, StreamAdmin
from duramen.client import TopicPartition as At
from duramen.codec.compression import CODECS
from duramen.codec.partitioner import partition_of
from duramen.node.process import NodeProcess


def consume(node: NodeProcess, stream: str, partitions: int, count: int) -> list[Message]:
    """`count` messages, with librdkafka."""
    consumer = Librdkafka({"bootstrap.servers": node.kafka, "group.id": "nobody", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(stream, index, 0) for index in range(partitions)])
    found: list[Message] = []
    while len(found) < count:
        found += consumer.consume(count, timeout=60)
    assert consumer.poll(0.2) is None
    consumer.close()
    return found


def write(frame: DataFrame, node: NodeProcess, **options: str) -> None:
    writer = frame.write.format("duramen").mode("append").option("kafka.bootstrap.servers", node.kafka)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.save()


@pytest.mark.variants(2)
@pytest.mark.parametrize("codec", CODECS)
def test_batch_writes_every_column(spark: SparkSession, node: NodeProcess, stream: str, codec: str) -> None:
    header = sf.struct(sf.lit("h").alias("key"), sf.lit(None).cast("binary").alias("value"))
    frame = spark.range(1000).repartition(3).select(
        sf.when(sf.col("id") % 5 == 0, None).otherwise(sf.col("id").cast("string")).alias("key"),
        sf.when(sf.col("id") % 7 == 0, None).otherwise(sf.encode(sf.col("id").cast("string"), "utf-8")).alias("value"),
        sf.when(sf.col("id") % 2 == 0, sf.lit(3)).alias("partition"),
        sf.when(sf.col("id") % 3 == 0, sf.array(header)).alias("headers"),
        sf.lit("ignored").alias("other"),
    )  # fmt: skip
    write(frame, node, topic=stream, kafka__compression__type=codec)
    found = consume(node, stream, 4, 1000)
    assert sorted(message.value() or b"null" for message in found) == sorted(
        b"null" if number % 7 == 0 else b"%d" % number for number in range(1000)
    )
    for message in found:
        key, value = message.key(), message.value()
        if value is None:
            continue
        number = int(value)
        assert key == (None if number % 5 == 0 else b"%d" % number)
        assert message.headers() == ([("h", None)] if number % 3 == 0 else None)
        if number % 2 == 0:
            assert message.partition() == 3
        elif key is not None:
            assert message.partition() == partition_of(key, 4)


def test_batch_takes_the_stream_from_a_column(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream_name: str
) -> None:
    for name in ("a", "b"):
        StreamAdmin(cluster).create_stream(f"{stream_name}-{name}", 1)
    frame = spark.createDataFrame(
        [(f"{stream_name}-a", "1"), (f"{stream_name}-b", "2"), (f"{stream_name}-a", "3")], "topic string, value string"
    )
    write(frame, node)
    assert sorted(message.value() or b"" for message in consume(node, f"{stream_name}-a", 1, 2)) == [b"1", b"3"]
    assert [message.value() for message in consume(node, f"{stream_name}-b", 1, 1)] == [b"2"]
    write(frame, node, topic=f"{stream_name}-b")
    assert len(consume(node, f"{stream_name}-b", 1, 4)) == 4


@pytest.mark.long
def test_save_is_short_for_topic(spark: SparkSession, node: NodeProcess, stream: str) -> None:
    frame = spark.createDataFrame([("x",)], "value string")
    frame.write.format("duramen").mode("append").option("kafka.bootstrap.servers", node.kafka).save(stream)
    assert [message.value() for message in consume(node, stream, 4, 1)] == [b"x"]


def test_stream_to_stream(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream: str, tmp_path: Path
) -> None:
    target = f"{stream}-copy"
    StreamAdmin(cluster).create_stream(target, 2)
    for step in range(2):
        with Producer(cluster) as producer:
            for number in range(500 * step, 500 * step + 500):
                producer.produce(stream, b"%d" % number, key=b"k", headers=[(b"n", b"%d" % number)])
        query = (
            spark.readStream.format("duramen")
            .option("kafka.bootstrap.servers", node.kafka)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .load(stream)
            .drop("topic", "partition")
            .writeStream.format("duramen")
            .option("kafka.bootstrap.servers", node.kafka)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .queryName("copying")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    found = consume(node, target, 2, 1000)
    partition = partition_of(b"k", 2)
    assert [(message.value(), message.partition(), message.headers()) for message in found] == [
        (b"%d" % number, partition, [("n", b"%d" % number)]) for number in range(1000)
    ]


@pytest.mark.variants(2)
@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("value string", {}, "neither the option topic nor a column `topic`"),
        ("key string", {"topic": "STREAM"}, "a column `value` is needed; there are key"),
        ("value int", {"topic": "STREAM"}, "the column `value` is int; it must be string or binary"),
        ("value string, partition bigint", {"topic": "STREAM"}, "the column `partition` is bigint; it must be integer"),
        ("value string, headers map<string,binary>", {"topic": "STREAM"}, "it must be array<struct<key:string,value"),
        ("value string", {"topic": "STREAM", "kafka.compression.type": "brotli"}, "one of none, gzip, snappy, lz4, z"),
        ("value string", {"topic": "STREAM", "kafka.acks": "0"}, "kafka.acks: '0' does not fit"),
        ("value string", {"topic": "STREAM", "kafka.enable.idempotence": "false"}, "always idempotent within a task"),
        ("value string", {"topik": "STREAM"}, "there is no option topik here; did you mean topic?"),
        (
            "value string",
            {"topic": "STREAM", "subscribe": "x"},
            "subscribe is an option of the source, not of the sink",
        ),
        (
            "value string",
            {"topic": "STREAM", "kafka.transactional.id": "x"},
            "the sink names the transaction",
        ),
        ("value string", {"topic": "STREAM", "kafka.value.serializer": "x"}, "kafka.value.serializer is not supported"),
    ],
)
def test_bad_options_and_columns_say_what_is_wrong_in_one_line(
    spark: SparkSession, node: NodeProcess, stream: str, columns: str, options: dict[str, str], message: str
) -> None:
    frame = spark.createDataFrame([], columns)
    with pytest.raises(AnalysisException) as caught:
        write(frame, node, **{name: value.replace("STREAM", stream) for name, value in options.items()})
    assert message in str(caught.value)
    assert "Traceback" not in str(caught.value)


@pytest.mark.long
def test_modes_that_a_stream_does_not_have_are_refused(spark: SparkSession, node: NodeProcess, stream: str) -> None:
    frame = spark.createDataFrame([("x",)], "value string")
    writer = frame.write.format("duramen").option("kafka.bootstrap.servers", node.kafka)
    with pytest.raises(AnalysisException, match=r'say mode\("append"\)'):
        writer.mode("overwrite").save(stream)


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("row", "columns", "message"),
    [
        (("nobody-made-this", "x"), "topic string, value string", "there is no stream nobody-made-this"),
        ((None, "x"), "topic string, value string", "a row has no topic"),
        (("STREAM", "x" * 2_000_000), "topic string, value string", "BatchTooLarge"),
        (("STREAM", 9, "x"), "topic string, partition int, value string", "has no partition 9"),
    ],
)
def test_what_cannot_be_written_is_said_in_one_line(
    spark: SparkSession, node: NodeProcess, stream: str, row: tuple[object, ...], columns: str, message: str
) -> None:
    frame = spark.createDataFrame([tuple(stream if value == "STREAM" else value for value in row)], columns)
    with pytest.raises(PySparkException) as caught:
        write(frame, node)
    assert message in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_stream_query_without_a_topic_ends(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream: str, tmp_path: Path
) -> None:
    with Producer(cluster) as producer:
        producer.produce(stream, b"x")
    source = spark.readStream.format("duramen").option("kafka.bootstrap.servers", node.kafka).load(stream)
    writer = source.select("value").writeStream.format("duramen").option("kafka.bootstrap.servers", node.kafka)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="neither the option topic nor a column"):
        query.awaitTermination()
    assert Consumer(cluster).bounds([At(stream, 0)])[At(stream, 0)][1] <= 1
