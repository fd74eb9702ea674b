"""Live topics of a real cluster: streams that have one, what is written to them, and consumers that keep its state."""

from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import until

from duramen.node.processes import NodeProcesses

__all__ = ["PARTITIONS", "LiveConsumer", "create", "has_leaders", "leaders", "write"]

PARTITIONS: Final = 3

_WAIT_S: Final = 60.0
_KEYS: Final = 50

State = dict[tuple[int, bytes], bytes]


class LiveConsumer:
    """A consumer of a live topic of a cluster, and what it has of each partition."""

    def __init__(self, servers: str, topic: str, **config: Any) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers, "group.id": "live", "auto.offset.reset": "earliest",
                "enable.partition.eof": True, "enable.auto.commit": False, **config,
            }
        )  # fmt: skip
        self.consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
        self.state: State = {}
        self.ends: dict[int, int] = {}

    def read_to(self, ends: dict[int, int]) -> None:
        """Read until each partition has told an end that is there, or behind."""
        while any(self.ends.get(partition, -1) < end for partition, end in ends.items()):
            message = self.consumer.poll(_WAIT_S)
            assert message is not None, (self.ends, ends)
            partition, error = message.partition() or 0, message.error()
            if error is not None:
                assert error.name() == "_PARTITION_EOF", error.str()
                self.ends[partition] = message.offset() or 0
                continue
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            self.state.pop((partition, key), None)
            if value is not None:
                self.state[partition, key] = bytes(value)


def write(servers: str, topic: str, first: int, count: int) -> tuple[State, dict[int, int]]:
    """What the topic has of these records, and where its partitions end."""
    written: list[tuple[int, int, bytes, bytes | None]] = []

    def stored(error: Any, message: Any) -> None:
        assert error is None, error
        written.append((message.partition(), message.offset(), message.key(), message.value()))

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(first, first + count):
        value = None if number % 7 == 0 else b"%d" % number
        producer.produce(topic, key=b"k%d" % (number % _KEYS), value=value, on_delivery=stored)
    assert not producer.flush(_WAIT_S)
    state: State = {}
    for partition, _, key, value in sorted(written, key=lambda one: one[:2]):
        state.pop((partition, key), None)
        if value is not None:
            state[partition, key] = value
    ends: dict[int, int] = {}
    for partition, offset, _, _ in written:
        ends[partition] = max(ends.get(partition, 0), offset + 1)
    return state, ends


def leaders(servers: str, topic: str) -> dict[int, int]:
    found = AdminClient({"bootstrap.servers": servers}).list_topics(topic, timeout=_WAIT_S).topics[topic]
    return {} if found.error is not None else {index: one.leader for index, one in found.partitions.items()}


def has_leaders(servers: str, topic: str) -> bool:
    found = leaders(servers, topic)
    return bool(found) and -1 not in found.values()


def create(nodes: NodeProcesses, name: str) -> str:
    config = {"keyed": "true", "keyed.live.topic": f"{name}.live"}
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers})
    admin.create_topics([NewTopic(name, PARTITIONS, 3, config=config)])[name].result(_WAIT_S)
    live = f"{name}.live"
    for servers in [node.kafka for node in nodes.nodes.values()]:
        until(partial(has_leaders, servers, live), _WAIT_S)
    return live
