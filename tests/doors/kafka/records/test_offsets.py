"""Where consumers begin: the start, the end, a time, an offset, and what happens to those that are gone."""

import asyncio
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import AIOKAFKA, CONFLUENT, Record
from tests.raw import batch_of, connect, produce_bytes, stream_id
from tests.untyped import untyped

from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

_TIMES = (1000, 2000, 2000, 5000, 3000, 9000)
# The first offset whose timestamp is at or after a time; none after the newest.
_FIRST_AT = {0: 0, 1000: 0, 1001: 1, 2000: 1, 2001: 3, 4000: 3, 5000: 3, 5001: 5, 9000: 5, 9001: None}


def _produce_at_times(node: NodeProcess, stream: str) -> None:
    AIOKAFKA.produce(node.kafka, stream, [Record(b"%d" % at, timestamp_ms=at) for at in _TIMES])


def test_confluent_finds_offsets(node: NodeProcess, admin: AdminClient, stream_name: str) -> None:
    _produce_at_times(node, stream_name)
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": stream_name})
    for time_ms, expected in _FIRST_AT.items():
        (found,) = consumer.offsets_for_times([TopicPartition(stream_name, 0, time_ms)], timeout=60)
        assert found.offset == (OFFSET_END if expected is None else expected)
    assert consumer.get_watermark_offsets(TopicPartition(stream_name, 0), timeout=60) == (0, 6)
    consumer.close()
    spec = untyped("confluent_kafka.admin").OffsetSpec
    wanted = {
        spec.earliest(): (0, -1), spec.latest(): (6, -1), spec.max_timestamp(): (5, 9000),
        spec.for_timestamp(2500): (3, 5000),
    }  # fmt: skip
    for place, (offset, timestamp) in wanted.items():
        (future,) = admin.list_offsets({TopicPartition(stream_name, 0): place}).values()
        result = future.result(60)
        assert (result.offset, result.timestamp) == (offset, timestamp)


def test_kafka_python_finds_offsets(node: NodeProcess, stream_name: str) -> None:
    _produce_at_times(node, stream_name)
    kafka = untyped("kafka")
    consumer = kafka.KafkaConsumer(bootstrap_servers=node.kafka)
    place = kafka.TopicPartition(stream_name, 0)
    for time_ms, expected in _FIRST_AT.items():
        found = consumer.offsets_for_times({place: time_ms})[place]
        assert (None if found is None else found.offset) == expected
    assert (consumer.beginning_offsets([place]), consumer.end_offsets([place])) == ({place: 0}, {place: 6})
    consumer.close()


def test_aiokafka_finds_offsets(node: NodeProcess, stream_name: str) -> None:
    _produce_at_times(node, stream_name)

    async def main() -> None:
        aiokafka = untyped("aiokafka")
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=node.kafka)
        await consumer.start()
        place = aiokafka.TopicPartition(stream_name, 0)
        for time_ms, expected in _FIRST_AT.items():
            found = (await consumer.offsets_for_times({place: time_ms}))[place]
            assert (None if found is None else found.offset) == expected
        assert await consumer.beginning_offsets([place]) == {place: 0}
        assert await consumer.end_offsets([place]) == {place: 6}
        await consumer.stop()

    asyncio.run(main())


def test_a_time_inside_a_compressed_batch(node: NodeProcess, stream_name: str) -> None:
    records = [Record(b"x" * 100, timestamp_ms=1000 + at) for at in range(1000)]
    CONFLUENT.produce(node.kafka, stream_name, records, compression="zstd")
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": stream_name})
    for at in (0, 1, 499, 998, 999):
        (found,) = consumer.offsets_for_times([TopicPartition(stream_name, 0, 1000 + at)], timeout=60)
        assert found.offset == at
    consumer.close()


def test_from_the_end_and_from_an_offset(node: NodeProcess, stream_name: str) -> None:
    CONFLUENT.produce(node.kafka, stream_name, [Record(b"%d" % number) for number in range(10)])
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": stream_name, "enable.auto.commit": False})
    consumer.assign([TopicPartition(stream_name, 0, 7)])
    assert [message.value() for message in consumer.consume(3, timeout=60)] == [b"7", b"8", b"9"]
    # That there is nothing behind the end shows by what comes next.
    CONFLUENT.produce(node.kafka, stream_name, [Record(b"next")])
    assert [message.value() for message in consumer.consume(1, timeout=60)] == [b"next"]
    consumer.close()


def test_an_offset_that_is_gone_is_reset_as_the_client_says(node: NodeProcess, stream_name: str) -> None:
    CONFLUENT.produce(node.kafka, stream_name, [Record(b"%d" % number) for number in range(10)])
    settings = {"bootstrap.servers": node.kafka, "group.id": stream_name, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(stream_name, 0, 1_000_000)])
    assert [message.value() for message in consumer.consume(2, timeout=60)][:1] == [b"0"]
    consumer.close()


def test_a_stream_made_anew_under_its_old_name_is_another_one(
    node: NodeProcess, admin: AdminClient, stream_name: str
) -> None:
    connection = connect(node)
    ids = []
    for value in (b"old", b"new"):
        for future in admin.create_topics([NewTopic(stream_name, 1, 1)]).values():
            future.result(60)
        ids.append(stream_id(connection, stream_name))
        assert produce_bytes(connection, stream_name, batch_of(value)).base_offset == 0
        if value == b"old":
            for future in admin.delete_topics([stream_name]).values():
                future.result(60)
    assert ids[0] != ids[1]
    assert [read.value for read in CONFLUENT.consume(node.kafka, stream_name, 1, 1)] == [b"new"]
    old: Any = connection.request(ApiKey.METADATA, {"topics": [{"topic_id": ids[0], "name": None}]})
    assert old["topics"][0]["error_code"] == 100
    connection.close()


def test_the_newest_record_that_is_left_after_a_deletion(
    new_node: Callable[..., NodeProcess], stream_name: str
) -> None:
    """Kafka looks at what is left, too; and so does a node that was killed and started again."""
    spec = untyped("confluent_kafka.admin").OffsetSpec
    place = TopicPartition(stream_name, 0)
    with new_node() as node:
        admin = AdminClient({"bootstrap.servers": node.kafka})
        admin.create_topics([NewTopic(stream_name, 1, 1)])[stream_name].result(60)
        times = (9000, 2000, 5000, 5000, 3000)
        AIOKAFKA.produce(node.kafka, stream_name, [Record(b"v", timestamp_ms=at) for at in times])
        for before, expected in ((0, (0, 9000)), (1, (2, 5000)), (3, (3, 5000)), (4, (4, 3000)), (5, (-1, -1))):
            (deleted,) = admin.delete_records([TopicPartition(stream_name, 0, before)]).values()
            assert deleted.result(60).low_watermark == before
            if before == 3:
                node.kill()
                node.restart()
                admin = AdminClient({"bootstrap.servers": node.kafka})
            (future,) = admin.list_offsets({place: spec.max_timestamp()}).values()
            result = future.result(60)
            assert (result.offset, result.timestamp) == expected
