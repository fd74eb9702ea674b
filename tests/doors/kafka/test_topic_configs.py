"""What topic configs do, through unchanged clients and raw requests."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import AIOKAFKA, CONFLUENT, Library, Place, Record
from tests.doors.kafka.asking import Asking
from tests.raw import Wanted, batch_of, connect, fetch_bytes, produce_bytes

from duramen.base.catalogue.catalogue import STREAM
from duramen.client.connection import BrokerConnection
from duramen.codec.batch import APPEND_TIME, CODEC_MASK, batches
from duramen.codec.compression import CODECS
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

TYPES = ("uncompressed", *CODECS[1:])


@pytest.fixture
def connection(node: NodeProcess) -> Iterator[BrokerConnection]:
    """A connection below every client."""
    connection = connect(node)
    yield connection
    connection.close()


def _create(admin: AdminClient, name: str, **config: object) -> None:
    texts = {key.replace("_", "."): str(value) for key, value in config.items()}
    (future,) = admin.create_topics([NewTopic(name, 1, 1, config=texts)]).values()
    future.result(60)


@pytest.mark.variants(2)
@pytest.mark.parametrize(
    "wanted", [TYPES[0], "zstd", *(pytest.param(one, marks=pytest.mark.long) for one in TYPES[1:-1])]
)
def test_records_of_every_library_are_stored_in_the_topic_s_compression(
    node: NodeProcess, admin: AdminClient, connection: BrokerConnection, library: Library, stream_name: str, wanted: str
) -> None:
    _create(admin, stream_name, compression_type=wanted)
    records = [
        Record(b"%s %d" % (codec.encode(), index) * 20, b"k", (("h", b"1"),), timestamp_ms=1_700_000_000_000 + index)
        for codec in library.compressions for index in range(3)
    ]  # fmt: skip
    for at, codec in enumerate(library.compressions):
        places = library.produce(
            node.kafka, stream_name, records[3 * at : 3 * at + 3], compression=codec, idempotent=True
        )
        assert places == [Place(0, 3 * at + index) for index in range(3)]
    reader = library if wanted in ("uncompressed", *library.compressions) else CONFLUENT
    read = reader.consume(node.kafka, stream_name, 1, len(records))
    assert [(one.value, one.key, one.headers, one.timestamp_ms) for one in read] == [
        (one.value, one.key, one.headers, one.timestamp_ms) for one in records
    ]
    (found,) = fetch_bytes(connection, stream_name, Wanted(0, 0))
    assert {head.attributes & CODEC_MASK for _, head in batches(found.records)} == {TYPES.index(wanted)}


def test_a_large_batch_in_lz4_comes_in_blocks_that_java_reads(
    node: NodeProcess, admin: AdminClient, connection: BrokerConnection, stream_name: str
) -> None:
    _create(admin, stream_name, compression_type="lz4", compression_lz4_level=12)
    CONFLUENT.produce(node.kafka, stream_name, [Record(bytes(range(256)) * 2000)])
    (found,) = fetch_bytes(connection, stream_name, Wanted(0, 0))
    assert bytes(found.records[61:65]) == bytes.fromhex("04224d18")
    assert found.records[65] & 0b0010_0000, "the blocks depend on each other"
    assert AIOKAFKA.consume(node.kafka, stream_name, 1, 1)[0].value == bytes(range(256)) * 2000


def test_the_time_of_the_append_is_answered_for_what_was_compressed_again(
    admin: AdminClient, connection: BrokerConnection, stream_name: str
) -> None:
    _create(admin, stream_name, compression_type="zstd", message_timestamp_type="LogAppendTime")
    answer = produce_bytes(connection, stream_name, batch_of(b"x" * 99, codec=1))
    (found,) = fetch_bytes(connection, stream_name, Wanted(0, 0))
    ((_, head),) = batches(found.records)
    assert head.attributes & (CODEC_MASK | APPEND_TIME) == 4 | APPEND_TIME
    assert answer.append_time_ms == head.max_timestamp > 1_700_000_000_000


def test_what_is_larger_than_allowed_after_it_was_decompressed_is_refused(
    admin: AdminClient, connection: BrokerConnection, stream_name: str
) -> None:
    _create(admin, stream_name, compression_type="uncompressed", max_message_bytes=10_000)
    assert produce_bytes(connection, stream_name, batch_of(bytes(50_000), codec=4)).error_code == 10
    assert produce_bytes(connection, stream_name, batch_of(bytes(9_000), codec=4)).base_offset == 0
    _create(admin, f"{stream_name}-2", compression_type="gzip", max_decompressed_message_bytes=1000)
    refused = produce_bytes(connection, f"{stream_name}-2", batch_of(bytes(5_000), codec=4))
    assert refused.error_code == ErrorCode.CORRUPT_MESSAGE


def test_no_more_replicas_are_wanted_than_a_topic_has(
    admin: AdminClient, connection: BrokerConnection, stream_name: str
) -> None:
    _create(admin, stream_name, min_insync_replicas=2)
    assert [produce_bytes(connection, stream_name, batch_of(b"x"), acks=acks).error_code for acks in (-1, 1)] == [0, 0]


@pytest.mark.parametrize(
    ("config", "value"),
    [
        ("remote.storage.enable", "true"),
        ("message.downconversion.enable", "false"),
        ("message.format.version", "3.0"),
        ("message.timestamp.difference.max.ms", "1"),
        ("compression.type", "brotli"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "0"),
        ("compression.zstd.level", "23"),
        ("leader.replication.throttled.replicas", "one"),
        ("follower.replication.throttled.replicas", "0:1,x"),
        ("message.timestamp.type", "Sometimes"),
        ("min.insync.replicas", "0"),
        ("segment.jitter.ms", "-1"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(node: NodeProcess, stream_name: str, config: str, value: str) -> None:
    with Asking(node) as asking:
        topic = {
            "name": stream_name, "num_partitions": 1, "replication_factor": 1,
            "configs": [{"name": config, "value": value}],
        }  # fmt: skip
        (found,) = asking.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 5000})["topics"]
    assert found["error_code"] == ErrorCode.INVALID_CONFIG
    assert config in found["error_message"]


def test_every_config_of_kafka_is_taken_with_its_default(node: NodeProcess, stream_name: str) -> None:
    kafkas: list[dict[str, Any]] = [
        {"name": name, "value": str(setting.default).lower() if setting.kind == "flag" else str(setting.default)}
        for name, setting in STREAM.items() if setting.kafka
    ]  # fmt: skip
    with Asking(node) as asking:
        topic = {"name": stream_name, "num_partitions": 1, "replication_factor": 1, "configs": kafkas}
        (found,) = asking.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 5000})["topics"]
    assert found["error_code"] == 0, found["error_message"]
