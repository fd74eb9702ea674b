"""Share groups with confluent-kafka's ShareConsumer, as it is."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from tests.clients import until
from tests.untyped import untyped

from duramen.node.process import NodeProcess

_MAKING_S = 60.0


@pytest.fixture
def consumer(node: NodeProcess, stream_name: str) -> Iterator[Callable[[], ShareConsumer]]:
    """Makes members, which acknowledge explicitly, of one group that begins at the start."""
    made: list[ShareConsumer] = []
    group = f"{stream_name}-group"
    admin = untyped("confluent_kafka.admin")
    to_set = admin.AlterConfigOpType.SET
    entry = admin.ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=to_set)
    resource = admin.ConfigResource(admin.ResourceType.GROUP, group, incremental_configs=[entry])
    client = admin.AdminClient({"bootstrap.servers": node.kafka})
    for changed in client.incremental_alter_configs([resource]).values():
        changed.result(timeout=_MAKING_S)

    def make() -> ShareConsumer:
        made.append(
            ShareConsumer(
                {
                    "bootstrap.servers": node.kafka, "group.id": group, "share.acknowledgement.mode": "explicit",
                    "log_level": 3,
                }
            )
        )  # fmt: skip
        made[-1].subscribe([stream_name])
        return made[-1]

    yield make
    for one in made:
        one.close()


def written(node: NodeProcess, stream: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": node.kafka})
    for value in values:
        producer.produce(stream, value)
    assert producer.flush(_MAKING_S) == 0


def polled(one: ShareConsumer) -> list[Message]:
    found = until(lambda: list(one.poll(timeout=1.0)))
    assert all(message.error() is None for message in found)
    return found


def test_accept_release_and_reject(node: NodeProcess, stream_name: str, consumer: Callable[[], ShareConsumer]) -> None:
    written(node, stream_name, b"accepted", b"released", b"rejected")
    one = consumer()
    says = {
        b"accepted": AcknowledgeType.ACCEPT, b"released": AcknowledgeType.RELEASE, b"rejected": AcknowledgeType.REJECT,
    }  # fmt: skip
    for message in polled(one):
        one.acknowledge(message, says[message.value() or b""])
    assert set(one.commit_sync(timeout=_MAKING_S).values()) == {None}
    again = polled(one)
    assert [(message.value(), message.delivery_count()) for message in again] == [(b"released", 2)]
    one.acknowledge(again[0], AcknowledgeType.ACCEPT)


def test_what_one_consumer_gives_back_another_gets(
    node: NodeProcess, stream_name: str, consumer: Callable[[], ShareConsumer]
) -> None:
    written(node, stream_name, *(b"%d" % index for index in range(10)))
    one, two = consumer(), consumer()
    first = polled(one)
    for message in first:
        one.acknowledge(message, AcknowledgeType.RELEASE)
    one.commit_sync(timeout=_MAKING_S)
    got: set[bytes | None] = set()
    while len(got) < 10:
        for message in polled(two):
            got.add(message.value())
            two.acknowledge(message, AcknowledgeType.ACCEPT)
    two.commit_sync(timeout=_MAKING_S)
    assert got == {b"%d" % index for index in range(10)}
