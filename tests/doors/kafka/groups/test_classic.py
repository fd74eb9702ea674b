"""Consumer groups: what their members, and those who administer them, see of them."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import CONFLUENT, Record, until
from tests.doors.kafka.members import MEMBERS
from tests.untyped import untyped

from duramen.node.process import NodeProcess

_S = 60


@pytest.fixture
def stream(node: NodeProcess, admin: AdminClient, stream_name: str) -> str:
    """A stream of four partitions with ten records in each."""
    for future in admin.create_topics([NewTopic(stream_name, 4, 1)]).values():
        future.result(_S)
    CONFLUENT.produce(node.kafka, stream_name, [Record(b"%d" % at, partition=at % 4) for at in range(40)])
    return stream_name


def _describe(admin: AdminClient, group: str) -> Any:
    (future,) = admin.describe_consumer_groups([group], request_timeout=_S).values()
    return future.result(_S)


def _states(admin: AdminClient) -> dict[str, ConsumerGroupState]:
    return {one.group_id: one.state for one in admin.list_consumer_groups(request_timeout=_S).result(_S).valid}


def _committed(node: NodeProcess, group: str, stream: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": group})
    found = consumer.committed([TopicPartition(stream, index) for index in range(4)], timeout=_S)
    consumer.close()
    return [one.offset for one in found]


@pytest.mark.variants(1)
@pytest.mark.parametrize("library", MEMBERS)
def test_a_group_from_its_first_member_to_its_deletion(
    node: NodeProcess, admin: AdminClient, stream: str, library: str
) -> None:
    member = MEMBERS[library](node.kafka, stream, stream).start()
    until(lambda: len(member.seen) >= 40)
    described = _describe(admin, stream)
    assert described.state == ConsumerGroupState.STABLE
    assert (described.is_simple_consumer_group, described.partition_assignor) == (False, "range")
    (known,) = described.members
    assert known.host == "/127.0.0.1"
    assert known.member_id.startswith(known.client_id)
    assert [one.partition for one in known.assignment.topic_partitions] == [0, 1, 2, 3]
    assert _states(admin)[stream] == ConsumerGroupState.STABLE
    (refused,) = admin.delete_consumer_groups([stream], request_timeout=_S).values()
    with pytest.raises(KafkaException) as raised:
        refused.result(_S)
    assert raised.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    member.leave()
    assert len(member.seen) == 40
    assert _describe(admin, stream).state == ConsumerGroupState.EMPTY
    assert _committed(node, stream, stream) == [10] * 4
    again = MEMBERS[library](node.kafka, stream, stream).start()
    until(lambda: again.assigned)
    CONFLUENT.produce(node.kafka, stream, [Record(b"new", partition=2)])
    until(lambda: again.seen)
    again.leave()
    assert [value for _, value in again.seen] == [b"new"]
    (deleted,) = admin.delete_consumer_groups([stream], request_timeout=_S).values()
    deleted.result(_S)
    assert stream not in _states(admin)
    assert _describe(admin, stream).state == ConsumerGroupState.DEAD
    assert _committed(node, stream, stream) == [-1001] * 4
    (missing,) = admin.delete_consumer_groups([stream], request_timeout=_S).values()
    with pytest.raises(KafkaException) as raised:
        missing.result(_S)
    assert raised.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


def test_a_static_member_comes_back_without_a_rebalance(node: NodeProcess, stream: str) -> None:
    rebalances: list[str] = []

    def member(instance: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": node.kafka, "group.id": stream, "group.instance.id": instance,
                "session.timeout.ms": 60_000, "heartbeat.interval.ms": 100, "partition.assignment.strategy": "range",
            }
        )  # fmt: skip

    def assigned(consumer: Consumer) -> set[int]:
        consumer.poll(0.05)
        return {one.partition for one in consumer.assignment()}

    staying, going = member("staying"), member("going")
    staying.subscribe([stream], on_assign=lambda *_: rebalances.append("assign"))
    going.subscribe([stream])
    until(lambda: len(assigned(staying)) == len(assigned(going)) == 2)
    share, before = assigned(going), len(rebalances)
    going.close()
    back = member("going")
    back.subscribe([stream])
    until(lambda: assigned(staying) and assigned(back) == share)
    assert len(rebalances) == before
    assert not assigned(staying) & share
    # Another one under the same name takes its place; the first is told so.
    other = member("going")
    other.subscribe([stream])
    until(lambda: assigned(other) == share)

    told = until(lambda: back.poll(0.05))
    assert told is not None
    assert "Static consumer fenced" in str(told.error())
    for consumer in (back, other, staying):
        consumer.close()


def test_static_members_are_removed_by_an_administrator(node: NodeProcess, admin: AdminClient, stream: str) -> None:
    consumer = Consumer(
        {"bootstrap.servers": node.kafka, "group.id": stream, "group.instance.id": "one", "session.timeout.ms": 60_000}
    )
    consumer.subscribe([stream])
    until(lambda: consumer.poll(0.05) is None and consumer.assignment())
    consumer.close()
    assert [one.group_instance_id for one in _describe(admin, stream).members] == ["one"]
    kafka_admin = untyped("kafka.admin")
    client = untyped("kafka").KafkaAdminClient(bootstrap_servers=node.kafka)
    removed = client.remove_group_members(stream, [kafka_admin.MemberToRemove(group_instance_id="one")])
    client.close()
    assert [error.errno for error in removed.values()] == [0]
    assert _describe(admin, stream).state == ConsumerGroupState.EMPTY


def test_cooperative_members_keep_what_they_have(node: NodeProcess, stream: str) -> None:
    lost: list[int] = []

    def member() -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": node.kafka, "group.id": stream, "heartbeat.interval.ms": 100,
                "partition.assignment.strategy": "cooperative-sticky", "auto.offset.reset": "earliest",
            }
        )  # fmt: skip

    def assigned(consumer: Consumer) -> set[int]:
        consumer.poll(0.05)
        return {one.partition for one in consumer.assignment()}

    first, second = member(), member()
    first.subscribe([stream], on_revoke=lambda _, partitions: lost.extend(one.partition for one in partitions))
    until(lambda: len(assigned(first)) == 4)
    second.subscribe([stream])
    until(lambda: len(assigned(first)) == len(assigned(second)) == 2)
    # Only what the other one has now was taken away.
    assert set(lost) == assigned(second)
    second.close()
    until(lambda: len(assigned(first)) == 4)
    first.close()


def test_offsets_carry_notes_and_are_set_by_an_administrator(
    node: NodeProcess, admin: AdminClient, stream: str
) -> None:
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": stream, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(stream, 1, 7, "a note")], asynchronous=False)
    (found,) = consumer.committed([TopicPartition(stream, 1)], timeout=_S)
    assert (found.offset, found.metadata) == (7, "a note")
    with pytest.raises(KafkaException) as raised:
        consumer.commit(offsets=[TopicPartition(stream, 1, 8, "x" * 5000)], asynchronous=False)
    assert raised.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    consumer.close()
    wanted = ConsumerGroupTopicPartitions(stream, [TopicPartition(stream, 0, 3), TopicPartition(stream, 1, 4)])
    (future,) = admin.alter_consumer_group_offsets([wanted], request_timeout=_S).values()
    assert [one.error for one in future.result(_S).topic_partitions] == [None, None]
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(stream)], request_timeout=_S).values()
    assert {(one.partition, one.offset) for one in future.result(_S).topic_partitions} == {(0, 3), (1, 4)}
    assert _committed(node, stream, stream) == [3, 4, -1001, -1001]


def test_the_other_libraries_administer_groups(node: NodeProcess, stream: str) -> None:
    member = MEMBERS["aiokafka"](node.kafka, stream, stream).start()
    until(lambda: len(member.seen) >= 40)
    kafka = untyped("kafka")
    client = kafka.KafkaAdminClient(bootstrap_servers=node.kafka)
    assert {"group_id": stream, "protocol_type": "consumer"}.items() <= next(
        one for one in client.list_groups(states_filter=["Stable"]) if one["group_id"] == stream
    ).items()
    assert [one["group_state"] for one in client.describe_groups([stream]).values()] == ["Stable"]
    assert client.delete_groups([stream]) == {stream: "NonEmptyGroupError"}

    async def administer() -> None:
        admin = untyped("aiokafka.admin").AIOKafkaAdminClient(bootstrap_servers=node.kafka)
        await admin.start()
        try:
            assert (stream, "consumer") in [found[:2] for found in await admin.list_consumer_groups()]
            (answer,) = await admin.describe_consumer_groups([stream])
            assert [group[1:3] for group in answer.groups] == [(stream, "Stable")]
            offsets = await admin.list_consumer_group_offsets(stream)
            assert {place.partition: found.offset for place, found in offsets.items()} == dict.fromkeys(range(4), 10)
        finally:
            await admin.close()

    # Seen comes before committed: leaving waits for the commit.
    member.leave()
    offsets = client.list_group_offsets({stream: None})[stream]
    assert {place.partition: found.offset for place, found in offsets.items()} == dict.fromkeys(range(4), 10)
    again = MEMBERS["kafka-python"](node.kafka, stream, stream).start()
    until(lambda: again.assigned)
    asyncio.run(administer())
    again.leave()
    assert client.delete_groups([stream]) == {stream: "OK"}
    client.close()


_DYING = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "session.timeout.ms": 6000})
consumer.subscribe([sys.argv[2]])
while True:
    consumer.poll(0.1)
    if consumer.assignment():
        print("joined", flush=True)
"""


@pytest.mark.long
def test_a_member_that_dies_is_replaced(node: NodeProcess, admin: AdminClient, stream: str) -> None:
    with subprocess.Popen([sys.executable, "-c", _DYING, node.kafka, stream], stdout=subprocess.PIPE) as dying:
        assert dying.stdout is not None
        assert dying.stdout.readline() == b"joined\n"
        heir = MEMBERS["kafka-python"](node.kafka, stream, stream).start()
        until(lambda: len(_describe(admin, stream).members) == 2)
        dying.kill()
    until(lambda: len(heir.assigned) == 4)
    until(lambda: len({place for place, _ in list(heir.seen)}) == 40)
    heir.leave()
    assert _describe(admin, stream).state == ConsumerGroupState.EMPTY
