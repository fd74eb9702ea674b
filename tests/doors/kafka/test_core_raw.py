"""What new brokers get wrong about Produce, ListOffsets, Metadata and versions, asked as no client of ours asks it."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from confluent_kafka import Consumer
from tests.clients import until
from tests.doors.kafka.asking import Asking, codes

from duramen.codec.batch import BatchInput, encode
from duramen.codec.kafka import produce
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.produce import PartitionData, PartitionResponse, ProduceRequest, TopicData
from duramen.codec.kafka.versions import APIS, ApiKey
from duramen.codec.varint import encode_uvarint
from duramen.node.process import NodeProcess

OLD: Final = range(3)
# What the issue and Apache Kafka's protocol guide say of this door's core and admin APIs.
RANGES: Final = {
    "PRODUCE": (0, 12), "FETCH": (4, 16), "LIST_OFFSETS": (1, 10), "METADATA": (0, 13), "API_VERSIONS": (0, 4),
    "OFFSET_FOR_LEADER_EPOCH": (2, 4), "CREATE_TOPICS": (2, 7), "DELETE_TOPICS": (1, 6), "DELETE_RECORDS": (0, 2),
    "CREATE_PARTITIONS": (0, 3), "DESCRIBE_CONFIGS": (1, 4), "ALTER_CONFIGS": (0, 2),
    "INCREMENTAL_ALTER_CONFIGS": (0, 1), "DESCRIBE_LOG_DIRS": (1, 4), "DESCRIBE_CLUSTER": (0, 2),
    "ALTER_REPLICA_LOG_DIRS": (1, 2), "DESCRIBE_TOPIC_PARTITIONS": (0, 0),
    "DESCRIBE_CLIENT_QUOTAS": (0, 1), "ALTER_CLIENT_QUOTAS": (0, 1),
}  # fmt: skip


@pytest.fixture
def asking(node: NodeProcess) -> Iterator[Asking]:
    """A raw connection."""
    with Asking(node) as connection:
        yield connection


def _create(asking: Asking, name: str, partitions: int = 1, **config: object) -> None:
    configs = [{"name": key.replace("_", "."), "value": str(value)} for key, value in config.items()]
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": configs}
    assert codes(asking.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 5000})["topics"]) == [0]


def _produce(asking: Asking, name: str, batch: bytes | bytearray, *, version: int = 9) -> PartitionResponse:
    request = ProduceRequest(None, -1, 1000, [TopicData(name, [PartitionData(0, memoryview(batch))])])
    frame, start = asking.ask_bytes(ApiKey.PRODUCE, version, b"".join(produce.encode_request(version, request)))
    return produce.decode_response(version, frame, start)[0].partitions[0]


def _now_ms(asking: Asking, name: str) -> int:
    """The node's clock: the time of an append."""
    _create(asking, f"{name}-clock", message_timestamp_type="LogAppendTime")
    return _produce(asking, f"{name}-clock", encode([BatchInput(1, None, b"x")])).append_time_ms


# -- versions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_exactly_what_is_implemented_is_advertised(asking: Asking, version: int) -> None:
    body = {"client_software_name": "asking", "client_software_version": "1"}
    found = asking.ask(ApiKey.API_VERSIONS, version, body)
    ranges = {one["api_key"]: (one["min_version"], one["max_version"]) for one in found["api_keys"]}
    assert ranges == {api.key: (api.low, api.high) for api in APIS.values()}
    assert {name: ranges[ApiKey[name]] for name in RANGES} == RANGES


@pytest.mark.parametrize("version", [5, 17, 32767, -1])
def test_a_newer_api_versions_is_answered_with_version_0_and_the_list(asking: Asking, version: int) -> None:
    """Its header never has tags, so that whoever asked can read it."""
    asking.send_raw(ApiKey.API_VERSIONS, version, b"\0" + b"\x02a\x02b\0")
    frame = asking.frame()
    found = RESPONSES[ApiKey.API_VERSIONS].decode(0, frame, 4)
    assert found["error_code"] == ErrorCode.UNSUPPORTED_VERSION
    assert len(found["api_keys"]) == len(APIS)


@pytest.mark.parametrize(("api", "version"), [(ApiKey.METADATA, 99), (ApiKey.FETCH, 3), (ApiKey.CREATE_TOPICS, 1)])
def test_other_versions_that_there_are_not_end_the_connection(asking: Asking, api: ApiKey, version: int) -> None:
    asking.send_raw(api, version, bytes(64))
    assert asking.closed()


def test_tagged_fields_that_nobody_knows_are_skipped(asking: Asking, stream_name: str) -> None:
    _create(asking, stream_name)
    body = REQUESTS[ApiKey.METADATA].encode(12, {"topics": [{"name": stream_name}]})
    assert body.endswith(b"\0")
    unknown = b"\x02" + b"".join(encode_uvarint(tag) + encode_uvarint(3) + b"abc" for tag in (77, 10_000))
    frame, start = asking.ask_bytes(ApiKey.METADATA, 12, body[:-1] + unknown)
    assert codes(RESPONSES[ApiKey.METADATA].decode(12, frame, start)["topics"]) == [0]


@pytest.mark.parametrize("version", OLD)
def test_produce_before_3_is_advertised_and_refused(asking: Asking, stream_name: str, version: int) -> None:
    """Old librdkafka stops compressing for brokers that do not name it (KAFKA-18659)."""
    _create(asking, stream_name)
    name = stream_name.encode()
    body = b"\xff\xff\0\0\x03\xe8\0\0\0\x01" + len(name).to_bytes(2, "big") + name + b"\0\0\0\x01\0\0\0\0\0\0\0\x03abc"
    frame, start = asking.ask_bytes(ApiKey.PRODUCE, version, body)
    at = start + 4 + 2 + len(name) + 4 + 4
    assert int.from_bytes(frame[at : at + 2], "big") == ErrorCode.UNSUPPORTED_VERSION


# -- records that are refused, each by its place (KIP-467) ----------------------------------------------


@pytest.mark.parametrize("codec", [0, 4])
def test_a_compacted_topic_names_the_records_without_a_key(asking: Asking, stream_name: str, codec: int) -> None:
    _create(asking, stream_name, cleanup_policy="compact")
    keys = (b"k", None, b"", None)
    found = _produce(asking, stream_name, encode([BatchInput(-1, key, b"v") for key in keys], codec=codec))
    assert found.error_code == ErrorCode.INVALID_RECORD
    assert [place for place, _ in found.record_errors] == [1, 3]
    assert all(why for _, why in found.record_errors)
    assert "2 records" in (found.message or "")
    assert _produce(asking, stream_name, encode([BatchInput(-1, b"", None)])).base_offset == 0


def test_timestamps_out_of_bounds_are_named_even_between_good_ones(asking: Asking, stream_name: str) -> None:
    _create(asking, stream_name, message_timestamp_before_max_ms=60_000, message_timestamp_after_max_ms=60_000)
    now_ms = _now_ms(asking, stream_name)
    times = (now_ms, now_ms - 3_600_000, -1, now_ms + 3_600_000, now_ms - 30_000)
    found = _produce(asking, stream_name, encode([BatchInput(time, None, b"v") for time in times]))
    assert found.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [place for place, _ in found.record_errors] == [1, 3]
    fine = [BatchInput(time, None, b"v") for time in (now_ms, -1, now_ms - 30_000)]
    assert _produce(asking, stream_name, encode(fine)).base_offset == 0


def test_only_the_newest_record_counts_where_only_the_future_is_bounded(asking: Asking, stream_name: str) -> None:
    _create(asking, stream_name)
    now_ms = _now_ms(asking, stream_name)
    late = encode([BatchInput(now_ms, None, b"v"), BatchInput(now_ms + 7_200_000, None, b"v")])
    found = _produce(asking, stream_name, late)
    assert (found.error_code, [place for place, _ in found.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [1])
    assert _produce(asking, stream_name, encode([BatchInput(1, None, b"v")])).base_offset == 0


@pytest.mark.parametrize("records", [b"", b"abc", bytes(60)])
def test_what_is_no_batch_is_an_invalid_record(asking: Asking, stream_name: str, records: bytes) -> None:
    _create(asking, stream_name)
    assert _produce(asking, stream_name, records).error_code == ErrorCode.INVALID_RECORD


# -- ListOffsets ----------------------------------------------------------------------------------------


def _offsets(asking: Asking, name: str, version: int, *wanted: tuple[int, int]) -> list[Any]:
    partitions = [{"partition_index": index, "timestamp": timestamp} for index, timestamp in wanted]
    asked = {"replica_id": -1, "topics": [{"name": name, "partitions": partitions}]}
    (topic,) = asking.ask(ApiKey.LIST_OFFSETS, version, asked)["topics"]
    return [(one["error_code"], one["offset"], one["timestamp"]) for one in topic["partitions"]]


@pytest.mark.parametrize("version", range(1, 11))
def test_special_timestamps_mean_something_from_their_version_on(
    asking: Asking, stream_name: str, version: int
) -> None:
    _create(asking, stream_name)
    _produce(asking, stream_name, encode([BatchInput(time, None, b"v") for time in (5000, 9000, 7000)]))
    unsupported = (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
    expected = {
        -1: (0, 3, -1),
        -2: (0, 0, -1),
        -3: (0, 1, 9000) if version >= 7 else unsupported,
        -4: (0, 0, -1) if version >= 8 else unsupported,
        -5: (0, -1, -1) if version >= 9 else unsupported,
        -6: unsupported,
        -1000: unsupported,
        # Inside a batch: the record, not the batch.
        0: (0, 0, 5000),
        5001: (0, 1, 9000),
        9000: (0, 1, 9000),
        9001: (0, -1, -1),
    }
    for timestamp, answer in expected.items():
        assert _offsets(asking, stream_name, version, (0, timestamp)) == [answer], timestamp


def test_times_are_found_after_a_restart_too(new_node: Callable[..., NodeProcess]) -> None:
    """Where the records are in their segment only."""
    node = new_node().start()
    with Asking(node) as asking:
        _create(asking, "t")
        for first in (1000, 4000, 2000):
            _produce(asking, "t", encode([BatchInput(first + at, None, b"v") for at in (0, 100, 50)], codec=1))
    node.kill()
    node.start()
    with Asking(node) as asking:
        for timestamp, offset in {0: 0, 1001: 1, 1051: 1, 1101: 3, 4075: 4, 4101: -1}.items():
            assert _offsets(asking, "t", 7, (0, timestamp))[0][1] == offset, timestamp
        assert _offsets(asking, "t", 7, (0, -3)) == [(0, 4, 4100)]


def test_a_partition_that_is_asked_for_twice_has_one_answer(asking: Asking, stream_name: str) -> None:
    _create(asking, stream_name, partitions=2)
    found = _offsets(asking, stream_name, 7, (0, -1), (1, -1), (0, -2))
    assert found == [(ErrorCode.INVALID_REQUEST, -1, -1), (0, 0, -1)]


# -- the broker's own topics ------------------------------------------------------------------------------


def test_internal_topics_are_called_so_and_marked(node: NodeProcess, asking: Asking, stream_name: str) -> None:
    _create(asking, stream_name)
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": stream_name})
    consumer.subscribe([stream_name])
    until(lambda: consumer.poll(0.05) is None and consumer.assignment())
    consumer.close()
    topics = {one["name"]: one for one in asking.ask(ApiKey.METADATA, 12, {"topics": None})["topics"]}
    assert topics["__consumer_offsets"]["is_internal"]
    assert not topics[stream_name]["is_internal"]
    asked = {"topics": [{"name": "__consumer_offsets"}], "response_partition_limit": 1}
    (described,) = asking.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, asked)["topics"]
    assert described["is_internal"]
