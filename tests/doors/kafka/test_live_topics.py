"""Live topics of keyed streams, read by unmodified clients: each key at its newest, up to ends that are states."""

import json
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.clients import Library
from tests.doors.kafka.conftest import Kcat
from tests.untyped import untyped

from duramen.codec.crc import crc32c
from duramen.node.process import NodeProcess

_SETTINGS = {"group.initial.rebalance.delay.ms": 0, "log.cleaner.backoff.ms": 50}


@pytest.fixture(scope="module")
def keyed_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node for keyed streams."""
    with NodeProcess(tmp_path_factory.mktemp("live") / "data", _SETTINGS) as node:
        yield node


@pytest.fixture
def name(request: pytest.FixtureRequest, keyed_node: NodeProcess) -> str:
    """A keyed stream with a live topic, whose name ends in `.live`."""
    name = f"s{crc32c(request.node.name.encode())}"
    config = {"keyed": "true", "keyed.live.topic": f"{name}.live"}
    admin = _admin(keyed_node)
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(60)
    return name


def _admin(node: NodeProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.kafka})


def _produce(node: NodeProcess, name: str, records: list[tuple[bytes, bytes | None]], **config: Any) -> None:
    producer = Producer({"bootstrap.servers": node.kafka, **config})
    for key, value in records:
        producer.produce(name, key=key, value=value, partition=0)
    producer.flush(60)


def _consumer(node: NodeProcess, **config: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": node.kafka, "group.id": "g", "enable.partition.eof": True,
            "auto.offset.reset": "earliest", "enable.auto.commit": False, **config,
        }
    )  # fmt: skip


def _to_boundary(consumer: Consumer) -> tuple[list[tuple[int | None, bytes | None, bytes | None]], int | None]:
    """Offset, key and value of what comes until a boundary, and where that is."""
    found: list[tuple[int | None, bytes | None, bytes | None]] = []
    while True:
        message = consumer.poll(60)
        assert message is not None, "neither a record nor the end came"
        error = message.error()
        if error is not None:
            assert error.name() == "_PARTITION_EOF"
            return found, message.offset()
        found.append((message.offset(), message.key(), message.value()))


def test_librdkafka_reads_each_key_once_pass_by_pass(keyed_node: NodeProcess, name: str) -> None:
    _produce(keyed_node, name, [(b"k%d" % (at % 10), b"%d" % at) for at in range(1000)])
    consumer = _consumer(keyed_node)
    consumer.subscribe([f"{name}.live"])
    assert _to_boundary(consumer) == ([(at, b"k%d" % (at % 10), b"%d" % at) for at in range(990, 1000)], 1000)
    _produce(keyed_node, name, [(b"k1", b"a"), (b"k2", None), (b"k1", b"b")])
    found, end = _to_boundary(consumer)
    if end == 1001:  # a pass may begin between the batches
        more, end = _to_boundary(consumer)
        found = [*found[1:], *more]
    assert (found, end) == ([(1001, b"k2", None), (1002, b"k1", b"b")], 1003)
    consumer.commit(asynchronous=False)
    place = TopicPartition(f"{name}.live", 0)
    assert consumer.get_watermark_offsets(place) == (0, 1003)
    assert consumer.committed([place], 60)[0].offset == 1003
    consumer.close()


def test_a_live_topic_is_not_changed(keyed_node: NodeProcess, name: str) -> None:
    live, admin = f"{name}.live", _admin(keyed_node)
    topics = admin.list_topics(timeout=60).topics
    assert {name, live} <= set(topics)
    assert len(topics[live].partitions) == 1
    errors: list[str] = []
    producer = Producer({"bootstrap.servers": keyed_node.kafka})
    producer.produce(
        live, key=b"k", value=b"v", on_delivery=lambda error, _: errors.append(error.name() if error else "")
    )
    producer.flush(60)
    assert errors == ["TOPIC_EXCEPTION"]
    change = ConfigEntry("retention.ms", "5", incremental_operation=AlterConfigOpType.SET)
    refused: Mapping[str, Callable[[], Any]] = {
        "partitions": lambda: admin.create_partitions([NewPartitions(live, 3)])[live],
        "records": lambda: next(iter(admin.delete_records([TopicPartition(live, 0, 1)]).values())),
        "topic": lambda: admin.delete_topics([live])[live],
        "config": lambda: next(
            iter(
                admin.incremental_alter_configs([ConfigResource("topic", live, incremental_configs=[change])]).values()
            )
        ),
    }
    for ask in refused.values():
        with pytest.raises(KafkaException) as found:
            ask().result(60)
        assert found.value.args[0].name() == "TOPIC_EXCEPTION"


def test_names_of_streams_and_live_topics_are_not_the_same(keyed_node: NodeProcess, name: str) -> None:
    admin = _admin(keyed_node)

    def refusal(stream: str, **config: str) -> str:
        with pytest.raises(KafkaException) as found:
            admin.create_topics([NewTopic(stream, 1, 1, config=config)])[stream].result(60)
        text: str = found.value.args[0].str()
        return text

    assert refusal(f"{name}.live") == f"the name {name}.live is taken by the live topic of stream {name}"
    for taken in (name, f"{name}.live", f"{name}_live", "other", "not/a/name", "__own"):
        told = refusal("other", keyed="true", **{"keyed.live.topic": taken})
        assert f"keyed.live.topic of other cannot be {taken}: " in told
    assert "keyed.live.topic needs keyed=true" in refusal("other", **{"keyed.live.topic": "free"})


def test_other_doors_refuse_a_live_topic_by_name(keyed_node: NodeProcess, name: str) -> None:
    connection = HTTPConnection(keyed_node.http, timeout=60)
    connection.request("GET", f"/v1/streams/{name}.live")
    answer = connection.getresponse()
    problem = json.loads(answer.read())
    connection.close()
    assert (answer.status, problem["type"]) == (409, "live-topic-read-only")


@pytest.mark.variants(1)
def test_every_library_reads_what_is_shown(keyed_node: NodeProcess, name: str, library: Library) -> None:
    _produce(keyed_node, name, [(b"k%d" % (at % 7), b"%d" % at) for at in range(100)], **{"compression.type": "lz4"})
    found = library.consume(keyed_node.kafka, f"{name}.live", 1, 7)
    assert [(one.key, one.value) for one in found] == [(b"k%d" % (at % 7), b"%d" % at) for at in range(93, 100)]


@pytest.mark.long
def test_kafka_python_goes_on_over_holes(keyed_node: NodeProcess, name: str) -> None:
    _produce(keyed_node, name, [(b"k", b"%d" % at) for at in range(100)])
    consumer = untyped("kafka").KafkaConsumer(bootstrap_servers=keyed_node.kafka, auto_offset_reset="earliest")
    place = untyped("kafka").TopicPartition(f"{name}.live", 0)
    consumer.assign([place])
    assert next(consumer).offset == 99
    _produce(keyed_node, name, [(b"k", b"%d" % at) for at in range(100)])
    assert next(consumer).offset == 199
    assert consumer.position(place) == 200
    consumer.close()


@pytest.mark.long
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions_are_shown_once_they_are_committed(keyed_node: NodeProcess, name: str, isolation: str) -> None:
    _produce(keyed_node, name, [(b"a", b"1"), (b"b", b"1")])
    producer = Producer({"bootstrap.servers": keyed_node.kafka, "transactional.id": name})
    producer.init_transactions(60)
    for value, commits in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        producer.produce(name, key=b"a", value=value)
        producer.flush(60)
        (producer.commit_transaction if commits else producer.abort_transaction)(60)
    producer.begin_transaction()
    producer.produce(name, key=b"b", value=b"open")
    producer.flush(60)
    _produce(keyed_node, name, [(b"c", b"behind")])
    consumer = _consumer(keyed_node, **{"isolation.level": isolation})
    consumer.assign([TopicPartition(f"{name}.live", 0, 0)])
    assert _to_boundary(consumer) == ([(1, b"b", b"1"), (4, b"a", b"committed")], 6)
    assert consumer.get_watermark_offsets(TopicPartition(f"{name}.live", 0), 60)[0] == 0
    producer.commit_transaction(60)
    found, end = _to_boundary(consumer)
    assert (found, end) == ([(6, b"b", b"open"), (7, b"c", b"behind")], 9)
    consumer.close()


@pytest.mark.long
def test_kcat_ends_at_the_boundary(keyed_node: NodeProcess, name: str, kcat: Kcat) -> None:
    _produce(keyed_node, name, [(b"k%d" % (at % 3), b"%d" % at) for at in range(20)])
    lines = kcat(keyed_node, ["-C", "-t", f"{name}.live", "-o", "beginning", "-e", "-q", "-f", "%o %k %s\n"])
    assert lines.splitlines() == [b"17 k2 17", b"18 k0 18", b"19 k1 19"]
