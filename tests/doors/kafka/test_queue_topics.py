"""A queue of a space as a Kafka topic, with unmodified clients."""

import json

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.clients import Library, Record, until
from tests.doors.kafka.asking import Asking
from tests.doors.kafka.conftest import Kcat
from tests.doors.kafka.java_reader import read_with_java

import duramen
from duramen.codec.batch import TRANSACTIONAL, BatchInput, encode
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.produce import (
    PartitionData,
    PartitionResponse,
    ProduceRequest,
    TopicData,
    decode_response,
    encode_request,
)
from duramen.codec.kafka.versions import ApiKey
from duramen.codec.partitioner import partition_of
from duramen.node.process import NodeProcess


def make_space(admin: AdminClient, name: str, prefix: str, **config: str) -> None:
    space = NewTopic(name, 2, config={"kind": "queues", "queue.topic.prefix": prefix, **config})
    admin.create_topics([space])[name].result(30)


def poll(consumer: Consumer) -> Message:
    """The next record."""
    while True:
        found = consumer.poll(30)
        assert found is not None
        if not found.error():
            return found


@pytest.fixture
def prefix(admin: AdminClient, stream_name: str) -> str:
    """That of a new space."""
    make_space(admin, stream_name, f"q-{stream_name}.")
    return f"q-{stream_name}."


def test_a_queue_is_a_topic_with_gaps(node: NodeProcess, stream_name: str, prefix: str, library: Library) -> None:
    for number in range(5):
        for name in ("ann", "bob"):
            library.produce(node.kafka, prefix + name, [Record(b"%d" % number, b"key", (("h", b"1"),))])
    found = library.consume(node.kafka, f"{prefix}ann", 1, 5)
    assert [(read.key, read.value, read.headers) for read in found] == [
        (b"key", b"%d" % number, (("h", b"1"),)) for number in range(5)
    ]
    with duramen.connect(node.http) as client:
        entries = client.queues(stream_name).retrieve("ann").entries
    assert [(entry.key, entry.value) for entry in entries] == [(b"key", b"%d" % number) for number in range(5)]


def test_edits_and_deletions_show_and_lag_is_0(node: NodeProcess, stream_name: str, prefix: str, kcat: Kcat) -> None:
    topic = f"{prefix}ann"
    with duramen.connect(node.http) as client:
        queues = client.queues(stream_name)
        first, second, _, last = queues.enqueue("ann", ["1", "2", "3", "4"])
        queues.enqueue("bob", ["other"] * 10)
        queues.edit("ann", [(first, "one")])
        queues.delete("ann", [second])
    assert kcat(node, ["-C", "-t", topic, "-o", "beginning", "-e", "-q"]) == b"one\n3\n4\n"
    assert kcat(node, ["-G", "group", "-e", "-q", "-X", "auto.offset.reset=earliest", topic]) == b"one\n3\n4\n"
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "group"})
    (committed,) = consumer.committed([TopicPartition(topic, 0)], 30)
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)
    consumer.close()
    assert (low, high) == (int(first.split(".")[1]), int(last.split(".")[1]) + 1)
    assert committed.offset == high
    with duramen.connect(node.http) as client:
        client.queues(stream_name).delete("ann", [last])
    assert kcat(node, ["-C", "-t", topic, "-o", "beginning", "-e", "-q"]) == b"one\n3\n"


@pytest.mark.long
def test_java_reads_a_queue_to_its_end_offset(node: NodeProcess, stream_name: str, prefix: str) -> None:
    with duramen.connect(node.http) as client:
        queues = client.queues(stream_name)
        positions = list[str]()
        for number in range(3):
            positions += queues.enqueue("ann", [f"{number}"])
            queues.enqueue("bob", ["other"] * 10)
        queues.delete("ann", [positions[1]])
        queues.edit("ann", [(positions[0], "first")])
    first, _, last = (int(position.split(".")[1]) for position in positions)
    assert read_with_java(node, f"{prefix}ann", 0) == [
        ["record", str(first), "-", "first"], ["record", str(last), "-", "2"], ["end", str(last + 1), str(last + 1)],
    ]  # fmt: skip
    with duramen.connect(node.http) as client:
        client.queues(stream_name).delete("ann", [positions[2]])
    *records, (_, position, end) = read_with_java(node, f"{prefix}ann", 0)
    assert (records, position) == ([["record", str(first), "-", "first"]], end)


def test_a_consumer_waits_for_its_own_queue_only(node: NodeProcess, prefix: str) -> None:
    producer = Producer({"bootstrap.servers": node.kafka, "enable.idempotence": True})
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "g", "fetch.wait.max.ms": 10_000})
    consumer.assign([TopicPartition(f"{prefix}{name}", 0, 0) for name in ("ann", "eve")])
    for number in range(3):
        for name in ("bob", "ann", "eve"):
            producer.produce(f"{prefix}{name}", b"%d" % number)
        assert producer.flush(30) == 0
        found = [poll(consumer) for _ in range(2)]
        assert {(one.topic(), one.value()) for one in found} == {
            (f"{prefix}{name}", b"%d" % number) for name in ("ann", "eve")
        }
    consumer.close()


def test_a_consumer_goes_on_after_entries_were_replaced(node: NodeProcess, stream_name: str, prefix: str) -> None:
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "g"})
    consumer.assign([TopicPartition(f"{prefix}ann", 0, 0)])
    with duramen.connect(node.http) as client:
        queues = client.queues(stream_name)
        _, second, _ = queues.enqueue("ann", ["1", "2", "3"])
        assert [poll(consumer).value() for _ in range(3)] == [b"1", b"2", b"3"]
        positions = queues.replace("ann", second, ["two", "three"], by="Eve")
    found = [poll(consumer) for _ in range(2)]
    assert [one.value() for one in found] == [b"two", b"three"]
    assert [one.offset() for one in found] == [int(position.split(".")[1]) for position in positions]
    low, high = consumer.get_watermark_offsets(TopicPartition(f"{prefix}ann", 0), 30)
    assert consumer.position([TopicPartition(f"{prefix}ann", 0)])[0].offset == high
    assert low < high
    consumer.close()


@pytest.mark.long
def test_a_consumer_below_the_start_of_the_log_of_a_space_is_told(node: NodeProcess, stream_name: str) -> None:
    config = {"queue.log.retention.ms": 0, "segment.bytes": 1 << 20}
    with duramen.connect(node.http) as client:
        client.spaces.create(stream_name, shards=1, config=config)
        queues = client.queues(stream_name)
        for _ in range(35):
            queues.enqueue("ann", [b"x"] * 10_000)
        until(lambda: client.streams.describe(stream_name).partitions[0].start_offset > 0, 60)
        assert queues.retrieve("ann", limit=1).entries[0].text == "x"
    options = {"bootstrap.servers": node.kafka, "group.id": "g", "auto.offset.reset": "error"}
    consumer = Consumer(options)
    consumer.assign([TopicPartition(stream_name, 0, 0)])
    with pytest.raises(KafkaException) as told:
        until(lambda: raised(consumer.poll(1)), 60)
    assert told.value.args[0].name() == "_AUTO_OFFSET_RESET"
    assert "out of range" in told.value.args[0].str()
    consumer.close()


def raised(message: Message | None) -> bool:
    """Raises the error of a message."""
    error = None if message is None else message.error()
    if error is not None:
        raise KafkaException(error)
    return False


def test_offsets_are_found_by_time(node: NodeProcess, prefix: str, kcat: Kcat, library: Library) -> None:
    topic = f"{prefix}ann"
    places = library.produce(node.kafka, topic, [Record(b"%d" % at, timestamp_ms=1000 + at) for at in range(10)])
    asked = kcat(node, ["-Q", "-t", f"{topic}:0:1004"]).strip()
    assert asked == b"%s [0] offset %d" % (topic.encode(), places[4].offset)
    assert kcat(node, ["-C", "-t", topic, "-o", "s@1008", "-e", "-q"]) == b"8\n9\n"


def test_what_is_refused(node: NodeProcess, admin: AdminClient, stream_name: str, prefix: str, kcat: Kcat) -> None:
    topic = f"{prefix}ann"
    with pytest.raises(KafkaException, match="TOPIC_EXCEPTION"):
        admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    for future in (
        admin.create_partitions([NewPartitions(topic, 2)])[topic], admin.delete_topics([topic])[topic],
        admin.delete_records([TopicPartition(topic, 0, 0)])[TopicPartition(topic, 0, 0)],
    ):  # fmt: skip
        with pytest.raises(KafkaException, match="POLICY"):
            future.result(30)
    with pytest.raises(KafkaException):
        make_space(admin, f"{stream_name}-b", prefix[:-1])
    with pytest.raises(KafkaException):
        make_space(admin, f"{stream_name}-b", stream_name[:-1])
    with pytest.raises(KafkaException):
        admin.create_topics([NewTopic(f"{stream_name}-c", 1, config={"queue.topic.prefix": "x."})])[
            f"{stream_name}-c"
        ].result(30)
    for name in (topic, stream_name):
        producer = Producer({"bootstrap.servers": node.kafka, "transactional.id": name})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(name, b"x")
        with pytest.raises(KafkaException, match="Policy violation"):
            producer.commit_transaction(30)
    listed = json.loads(kcat(node, ["-L", "-J"]))
    assert topic not in [one["topic"] for one in listed["topics"]]


def test_refusals_of_a_space_name_their_cause(node: NodeProcess, admin: AdminClient, stream_name: str) -> None:
    make_space(admin, stream_name, f"q-{stream_name}.")
    with Asking(node) as asking:

        def produce(topic: str, partition: int, key: bytes, **header: int) -> PartitionResponse:
            batch = memoryview(encode([BatchInput(1, key, b"x")], **header))
            id_ = "t" if header else None
            request = ProduceRequest(id_, -1, 5000, [TopicData(topic, [PartitionData(partition, batch)])])
            frame, start = asking.ask_bytes(ApiKey.PRODUCE, 9, b"".join(encode_request(9, request)))
            (answer,) = decode_response(9, frame, start)[0].partitions
            return answer

        transaction = {"attributes": TRANSACTIONAL, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
        right = partition_of(b"ann", 2)
        for answer, cause in (
            (produce(stream_name, 1 - right, b"ann"), f"is in partition {right}, not {1 - right}"),
            (produce(stream_name, right, b"ann", **transaction), "takes no transactions"),
            (produce(f"q-{stream_name}.ann", 0, b"ann", **transaction), "takes no transactions"),
        ):
            assert answer.error_code == ErrorCode.INVALID_RECORD
            assert cause in (answer.message or "")
