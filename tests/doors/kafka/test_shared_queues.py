"""Share groups on topics of queues, with unmodified clients: `test_share_java.py` has Java's."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from tests.clients import until
from tests.doors.kafka.sharing import ACCEPT, Given, RawShareConsumer
from tests.raw import connect

import duramen
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

_WAIT_S = 60.0


@pytest.fixture
def prefix(admin: AdminClient, stream_name: str) -> str:
    """That of the topics of a new space; the group of the same name starts at the first entry."""
    name = f"q{stream_name[-80:]}."
    space = NewTopic(stream_name, 2, config={"kind": "queues", "queue.topic.prefix": name})
    admin.create_topics([space])[stream_name].result(_WAIT_S)
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, stream_name, incremental_configs=[entry])
    admin.incremental_alter_configs([group])[group].result(_WAIT_S)
    return name


@pytest.fixture
def consumer(node: NodeProcess, stream_name: str) -> Iterator[Callable[..., ShareConsumer]]:
    """Makes members of the group."""
    made: list[ShareConsumer] = []

    def make(*topics: str) -> ShareConsumer:
        config = {
            "bootstrap.servers": node.kafka, "group.id": stream_name, "share.acknowledgement.mode": "explicit",
            "log_level": 3,
        }  # fmt: skip
        made.append(ShareConsumer(config))
        made[-1].subscribe([*topics])
        return made[-1]

    yield make
    for one in made:
        one.close()


def polled(one: ShareConsumer) -> list[Message]:
    found: list[Message] = until(lambda: list(one.poll(timeout=1.0)))
    assert all(message.error() is None for message in found)
    return found


def commit(one: ShareConsumer) -> None:
    assert set(one.commit_sync(timeout=_WAIT_S).values()) == {None}


def test_a_share_group_reads_queues_whose_entries_are_deleted_and_edited(
    node: NodeProcess, stream_name: str, prefix: str, consumer: Callable[..., ShareConsumer]
) -> None:
    with duramen.connect(node.http) as client:
        queues = client.queues(stream_name)
        first, second, third = queues.enqueue("ann", ["accepted", "deleted", "released"])
        queues.enqueue("bob", ["other"] * 100)
        queues.enqueue("ann", ["rejected"])
        queues.delete("ann", [second])
        one = consumer(f"{prefix}ann")
        says = {b"accepted": AcknowledgeType.ACCEPT, b"released": AcknowledgeType.RELEASE}
        got: dict[bytes | None, int | None] = {}
        while len(got) < 3:
            for message in polled(one):
                got[message.value()] = message.delivery_count()
                one.acknowledge(message, says.get(message.value() or b"", AcknowledgeType.REJECT))
            commit(one)
            if b"released" in got:
                queues.edit("ann", [(third, "edited")])
        assert dict.fromkeys(got, 1) == got
        assert got.keys() == {b"accepted", b"released", b"rejected"}
        (again,) = polled(one)
        assert (again.value(), again.delivery_count(), again.offset()) == (b"edited", 2, int(third.split(".")[1]))
        one.acknowledge(again, AcknowledgeType.ACCEPT)
        commit(one)
        producer = Producer({"bootstrap.servers": node.kafka})
        producer.produce(f"{prefix}ann", b"new", b"key")
        assert producer.flush(_WAIT_S) == 0
        (new,) = polled(one)
        assert (new.key(), new.value()) == (b"key", b"new")
        assert [entry.text for entry in queues.retrieve("ann", first).entries] == [
            "accepted", "edited", "rejected", "new",
        ]  # fmt: skip


def test_members_share_a_queue_and_each_entry_is_delivered_once(
    node: NodeProcess, stream_name: str, prefix: str, consumer: Callable[..., ShareConsumer]
) -> None:
    with duramen.connect(node.http) as client:
        names = ["ann", "bob", "eve"]
        client.queues(stream_name).enqueue_many([(names[at % 3], f"{at}") for at in range(60)])
    members = [consumer(*(prefix + name for name in names)) for _ in range(2)]
    got: list[bytes] = []
    while len(got) < 60:
        for one in members:
            for message in one.poll(timeout=0.1):
                got.append(message.value() or b"")
                one.acknowledge(message, AcknowledgeType.ACCEPT)
            one.commit_sync(timeout=_WAIT_S)
    assert sorted(got, key=int) == [b"%d" % at for at in range(60)]


def test_offsets_of_a_group_in_a_queue(node: NodeProcess, stream_name: str, prefix: str) -> None:
    topic = f"{prefix}ann"
    with duramen.connect(node.http) as client:
        queues = client.queues(stream_name)
        first = int(queues.enqueue("ann", ["1"])[0].split(".")[1])
        queues.enqueue_many([(f"u{at}", "x") for at in range(20)])
        second, third = (int(one.split(".")[1]) for one in queues.enqueue("ann", ["2", "3"]))
    one = RawShareConsumer(node, stream_name, topic, "one")
    with closing(connect(node)) as asking:

        def described() -> tuple[int, int]:
            wanted = {"groups": [{"group_id": stream_name, "topics": None}]}
            (group,) = asking.request(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, wanted)["groups"]
            (found,) = group["topics"]
            assert (found["topic_name"], found["topic_id"]) == (topic, one.topic_id)
            (partition,) = found["partitions"]
            return partition["start_offset"], partition["lag"]

        assert one.join() == [0]
        assert [got.offset for got in one.fetch()] == [first, second, third]
        assert described() == (first, 3)
        assert one.say(Given(first, first, [ACCEPT])) == {0: 0}
        assert described() == (second, 2)
        one.leave()
        topics = [{"topic_name": topic, "partitions": [{"partition_index": 0, "start_offset": first}]}]
        asking.request(ApiKey.ALTER_SHARE_GROUP_OFFSETS, {"group_id": stream_name, "topics": topics})
        assert described() == (first, 3)
        deleted = asking.request(
            ApiKey.DELETE_SHARE_GROUP_OFFSETS, {"group_id": stream_name, "topics": [{"topic_name": topic}]}
        )
        assert [found["error_code"] for found in deleted["responses"]] == [0]


def test_acknowledgements_over_gaps_and_of_others(node: NodeProcess, stream_name: str, prefix: str) -> None:
    with duramen.connect(node.http) as client:
        queues = client.queues(stream_name)
        offsets = []
        for at in range(3):
            offsets.append(int(queues.enqueue("ann", [f"{at}"])[0].split(".")[1]))
            queues.enqueue_many([(f"u{other}", "x") for other in range(20)])
    one, two = (RawShareConsumer(node, stream_name, f"{prefix}ann", name) for name in ("one", "two"))
    assert one.join() == two.join() == [0]
    assert [got.offset for got in one.fetch(most=2)] == offsets[:2]
    assert [got.offset for got in two.fetch()] == offsets[2:]
    first, second, third = offsets
    assert one.say(Given(first, second, [ACCEPT])) == {0: ErrorCode.INVALID_RECORD_STATE}
    assert one.say(Given(third, third, [ACCEPT])) == {0: ErrorCode.INVALID_RECORD_STATE}
    assert one.say(Given(first, first, [ACCEPT]), Given(second, second, [ACCEPT])) == {0: 0}
    two.leave()
    assert [(got.offset, got.deliveries) for got in one.fetch()] == [(third, 2)]
    one.leave()
