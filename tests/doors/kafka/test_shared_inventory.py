"""Share groups on topics of the inventory while these are renamed and deleted: `test_share_java.py` has Java's."""

from collections.abc import Callable, Iterator
from contextlib import closing
from uuid import UUID

import pytest
from confluent_kafka import AcknowledgeType, Message, ShareConsumer
from tests.clients import CONFLUENT, Record
from tests.doors.kafka.sharing import ACCEPT, RELEASE, Given, RawShareConsumer
from tests.doors.kafka.test_shared_queues import commit, polled
from tests.raw import connect

import duramen
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess


@pytest.fixture(scope="module")
def shop(node: NodeProcess) -> Iterator[duramen.Client]:
    """A client of a node with the namespace shared/prod."""
    with duramen.connect(node.http) as client:
        client.inventory.create_tenants(["shared"])
        client.inventory.create_namespaces("shared", ["prod"])
        yield client


@pytest.fixture
def make(node: NodeProcess, stream_name: str) -> Iterator[Callable[[str, str], RawShareConsumer]]:
    """Makes members of a group that starts at the first record of a topic."""
    made: list[RawShareConsumer] = []

    def member(topic: str, name: str) -> RawShareConsumer:
        made.append(RawShareConsumer(node, stream_name, topic, name))
        made[-1].configure(share_auto_offset_reset="earliest")
        return made[-1]

    yield member
    for one in made:
        one.connection.close()


def paths(stream_name: str) -> tuple[str, str]:
    name = stream_name[-60:]
    return f"shared/prod/{name}.a", f"shared/prod/{name}.b"


def kafka(path: str) -> str:
    return path.replace("/", ".")


@pytest.mark.parametrize("keep_alias", [False, True])
def test_a_running_group_goes_on_after_a_rename(
    node: NodeProcess, shop: duramen.Client, stream_name: str, make: Callable[[str, str], RawShareConsumer],
    keep_alias: bool,
) -> None:  # fmt: skip
    before, after = paths(stream_name)
    shop.inventory.create_topics("shared/prod", [before.split("/")[2]])
    CONFLUENT.produce(node.kafka, kafka(before), [Record(value) for value in (b"1", b"2", b"3")])
    one = make(kafka(before), "one")
    assert one.join() == [0]
    first, second, third = (got.offset for got in one.fetch())
    assert one.say(Given(first, first, [ACCEPT])) == {0: 0}
    shop.inventory.move_topic(before, after, keep_alias=keep_alias)
    CONFLUENT.produce(node.kafka, kafka(after), [Record(b"4")])
    # What was acquired under the old name may be acknowledged under it.
    assert one.say(Given(second, second, [RELEASE]), Given(third, third, [ACCEPT])) == {0: 0}
    if keep_alias:
        assert (second, 2, b"2") in [(got.offset, got.deliveries, got.value) for got in one.fetch()]
    else:
        assert one.fetch() == []
        (failed,) = one.last["responses"]
        assert failed["partitions"][0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID
        assert one.beat()["assignment"]["topic_partitions"] == []
    two = make(kafka(after), "two")
    assert two.topic_id != one.topic_id
    assert two.join() == [0]
    one.leave()
    expected = [(3 if keep_alias else 2, b"2"), (2 if keep_alias else 1, b"4")]
    assert [(got.deliveries, got.value) for got in two.fetch()] == expected
    with closing(connect(node)) as asking:
        wanted = {"groups": [{"group_id": stream_name, "topics": None}]}
        (group,) = asking.request(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, wanted)["groups"]
        (found,) = group["topics"]
        assert (found["topic_name"], found["topic_id"]) == (kafka(after), two.topic_id)
        assert (found["partitions"][0]["start_offset"], found["partitions"][0]["lag"]) == (second, 2)
        two.leave()
        for path in [before, after] if keep_alias else [after]:
            shop.inventory.delete_topic(path)
        (group,) = asking.request(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, wanted)["groups"]
        assert not group["topics"]


def test_a_client_cannot_read_by_the_lasting_id(
    node: NodeProcess, shop: duramen.Client, stream_name: str, make: Callable[[str, str], RawShareConsumer]
) -> None:
    path, _ = paths(stream_name)
    shop.inventory.create_topics("shared/prod", [path.split("/")[2]])
    CONFLUENT.produce(node.kafka, kafka(path), [Record(b"1")])
    one = make(kafka(path), "one")
    one.join()
    one.topic_id = UUID(shop.inventory.topic(path).id)
    assert one.fetch() == []
    assert one.last["responses"][0]["partitions"][0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID


def test_what_a_share_group_reads_counts_to_the_rate_of_the_namespace(
    node: NodeProcess, shop: duramen.Client, stream_name: str, make: Callable[[str, str], RawShareConsumer]
) -> None:
    path, _ = paths(stream_name)
    shop.inventory.create_namespaces("shared", ["slow"])
    shop.inventory.policies.set("shared/slow", {"consumer_byte_rate": 500})
    path = path.replace("/prod/", "/slow/")
    shop.inventory.create_topics("shared/slow", [path.split("/")[2]])
    CONFLUENT.produce(node.kafka, kafka(path), [Record(bytes(20_000))])
    one = make(kafka(path), "one")
    one.join()
    assert len(one.fetch()) == 1
    assert one.last["throttle_time_ms"] > 1000


@pytest.mark.parametrize("keep_alias", [False, True])
def test_an_unmodified_client_goes_on_after_a_rename(
    node: NodeProcess, shop: duramen.Client, stream_name: str, make: Callable[[str, str], RawShareConsumer],
    keep_alias: bool,
) -> None:  # fmt: skip
    before, after = paths(stream_name)
    shop.inventory.create_topics("shared/prod", [before.split("/")[2]])
    make(kafka(before), "operator")
    config = {
        "bootstrap.servers": node.kafka, "group.id": stream_name, "share.acknowledgement.mode": "explicit",
        "topic.metadata.refresh.interval.ms": 300, "log_level": 3,
    }  # fmt: skip
    consumer = ShareConsumer(config)
    with closing(consumer):
        consumer.subscribe([kafka(before)])
        CONFLUENT.produce(node.kafka, kafka(before), [Record(b"1"), Record(b"2")])
        got: list[bytes | None] = []
        while len(got) < 2:
            got += [message.value() for message in acknowledged(consumer)]
        shop.inventory.move_topic(before, after, keep_alias=keep_alias)
        CONFLUENT.produce(node.kafka, kafka(after), [Record(b"3")])
        if not keep_alias:
            consumer.subscribe([kafka(after)])
        while len(got) < 3:
            got += [message.value() for message in acknowledged(consumer)]
    assert got == [b"1", b"2", b"3"]


def acknowledged(consumer: ShareConsumer) -> list[Message]:
    found = polled(consumer)
    for message in found:
        consumer.acknowledge(message, AcknowledgeType.ACCEPT)
    commit(consumer)
    return found
