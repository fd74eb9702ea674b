"""A compacted topic, read by unmodified clients: offsets are missing, batches are empty, nobody gets stuck."""

import asyncio
import json
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import CONFLUENT, Library, Record, metric, until
from tests.untyped import untyped

import duramen
from duramen.client.connection import BrokerConnection
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

_SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.backoff.ms": 50,
    "log.cleaner.io.max.bytes.per.second": 0,
}
_CONFIG = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0"}
_NOW_MS = 1_700_000_000_000
_COUNT = 90


def _record(at: int) -> Record:
    """First 30 records of one key, then 60 of ten keys, a third of them tombstones."""
    key = b"hot" if at < 30 else b"key-%d" % (at % 10)
    value = None if at >= 30 and at % 3 == 0 else b"%d" % at * 100
    return Record(value, key, timestamp_ms=_NOW_MS + 1000 * at, partition=0)


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node with a compacted stream `keyed`."""
    directory = tmp_path_factory.mktemp("compacted") / "data"
    with NodeProcess(directory, _SETTINGS) as node:
        admin = AdminClient({"bootstrap.servers": node.kafka})
        admin.create_topics([NewTopic("keyed", 1, 1, config=_CONFIG)])["keyed"].result(60)
        for first in range(0, _COUNT, 5):
            records = [_record(at) for at in range(first, first + 5)]
            CONFLUENT.produce(node.kafka, "keyed", records, compression=("none", "gzip")[first // 5 % 2])
        # The checkpoint of a clean stop has every closed segment synced.
        node.stop()
        node.start()
        # Not the count of rounds: all of it may be compacted before the restart.
        until(lambda: len(_read_to_end(node, 0)) < _COUNT / 2)
        until(lambda: metric(node, "duramen_compaction_running") == 0)
        yield node


def _read_to_end(node: NodeProcess, offset: int) -> list[tuple[Any, ...]]:
    """Offset, key, value and time of everything that librdkafka finds from `offset` on."""
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "unused", "enable.partition.eof": True})
    consumer.assign([TopicPartition("keyed", 0, offset)])
    found: list[tuple[Any, ...]] = []
    while True:
        message = consumer.poll(60)
        assert message is not None, "neither a record nor the end came"
        error = message.error()
        if error is not None:
            assert error.name() == "_PARTITION_EOF"
            consumer.close()
            return found
        found.append((message.offset(), message.key(), message.value(), message.timestamp()[1]))


def test_every_library_reads_the_same_records_from_the_start(compacted: NodeProcess, library: Library) -> None:
    kept = _read_to_end(compacted, 0)
    assert kept[-1][0] == _COUNT - 1
    assert len(kept) < _COUNT / 2
    for offset, key, value, timestamp_ms in kept:
        record = _record(offset)
        assert (key, value, timestamp_ms) == (record.key, record.value, record.timestamp_ms)
    newest = {_record(at).key: at for at in range(_COUNT)}
    assert set(newest.values()) <= {offset for offset, *_ in kept}
    read = library.consume(compacted.kafka, "keyed", 1, len(kept))
    assert [(one.place.offset, one.key, one.value, one.timestamp_ms) for one in read] == kept


def test_reading_begins_in_any_gap(compacted: NodeProcess) -> None:
    kept = _read_to_end(compacted, 0)
    for offset in range(0, _COUNT, 17):
        assert _read_to_end(compacted, offset) == [one for one in kept if one[0] >= offset]


def test_kafka_python_and_aiokafka_seek_into_a_gap(compacted: NodeProcess) -> None:
    kept = _read_to_end(compacted, 0)
    kafka, aiokafka = untyped("kafka"), untyped("aiokafka")
    consumer = kafka.KafkaConsumer(bootstrap_servers=compacted.kafka)
    place = kafka.TopicPartition("keyed", 0)
    consumer.assign([place])

    async def main() -> None:
        other = aiokafka.AIOKafkaConsumer(bootstrap_servers=compacted.kafka)
        await other.start()
        try:
            there = aiokafka.TopicPartition("keyed", 0)
            other.assign([there])
            for offset in range(0, _COUNT, 11):
                first = next(one[0] for one in kept if one[0] >= offset)
                other.seek(there, offset)
                assert (await asyncio.wait_for(other.getone(), 60)).offset == first
                consumer.seek(place, offset)
                assert next(consumer).offset == first
        finally:
            await other.stop()

    try:
        asyncio.run(main())
    finally:
        consumer.close()


def test_offsets_by_time_are_those_of_records_that_are_there(compacted: NodeProcess) -> None:
    kept = _read_to_end(compacted, 0)
    kafka = untyped("kafka")
    consumer = kafka.KafkaConsumer(bootstrap_servers=compacted.kafka)
    place = kafka.TopicPartition("keyed", 0)
    for at in range(0, _COUNT, 3):
        found = consumer.offsets_for_times({place: _NOW_MS + 1000 * at})[place]
        assert found.offset == next(offset for offset, *_ in kept if offset >= at)
    assert (consumer.beginning_offsets([place]), consumer.end_offsets([place])) == ({place: 0}, {place: _COUNT})
    consumer.close()


def test_epochs_end_where_they_did(compacted: NodeProcess) -> None:
    host, _, port = compacted.kafka.rpartition(":")
    connection = BrokerConnection(host, int(port), client_id="raw", timeout_s=60)
    asked = {
        "replica_id": -1,
        "topics": [{"topic": "keyed", "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 1}]}],
    }
    (topic,) = connection.request(ApiKey.OFFSET_FOR_LEADER_EPOCH, asked)["topics"]
    assert topic["partitions"][0]["end_offset"] == _COUNT
    connection.close()


def test_a_record_without_a_key_is_refused(compacted: NodeProcess) -> None:
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": compacted.kafka})
    producer.produce("keyed", b"no key", on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.INVALID_RECORD


def test_kills_in_the_middle_of_compaction_lose_no_key(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node(
        {
            **_SETTINGS,
            "log.cleaner.io.max.bytes.per.second": 200_000,
            "wal.file.bytes": 1 << 20,
            "wal.max.bytes": 8 << 20,
        }
    ).start()
    admin = AdminClient({"bootstrap.servers": node.kafka})
    config = _CONFIG | {"segment.bytes": "100000"}
    admin.create_topics([NewTopic("keyed", 1, 1, config=config)])["keyed"].result(60)
    acknowledged: dict[bytes | None, bytes | None] = {}
    for generation in range(3):
        for first in range(0, 3000, 500):
            records = [
                Record(b"%d-%d" % (generation, at) * 100, b"key-%d" % (at % 50)) for at in range(first, first + 500)
            ]
            CONFLUENT.produce(node.kafka, "keyed", records)
            acknowledged |= {record.key: record.value for record in records}
        until(lambda: metric(node, "duramen_compaction_running") == 1)
        node.kill()
        node.start()
        found = {key: value for _, key, value, _ in _read_to_end(node, 0)}
        assert found == acknowledged


def test_the_python_client_and_http_read_the_same(compacted: NodeProcess) -> None:
    kept = [(offset, key, value) for offset, key, value, _ in _read_to_end(compacted, 0)]
    with duramen.connect(f"http://{compacted.http}") as client:
        read = [(record.offset, record.key, record.value) for batch in client.consume("keyed") for record in batch]
    assert read == kept
    found: list[tuple[Any, ...]] = []
    offset = 0
    while offset < _COUNT:
        connection = HTTPConnection(compacted.http, timeout=60)
        connection.request("GET", f"/v1/streams/keyed/records?partition=0&offset={offset}&limit=7")
        page = json.loads(connection.getresponse().read())
        connection.close()
        for one in page["records"]:
            value = one["value"]
            found.append((one["offset"], one["key"].encode(), None if value is None else value.encode()))
        assert page["next"] > offset
        offset = page["next"]
    assert found == kept
