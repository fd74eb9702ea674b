"""Three real nodes that nobody writes to for longer than a follower may lag: the next record finds all in sync."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import until

from duramen.node.processes import NodeProcesses

_WAIT_S: Final = 60.0
_LAG_MS: Final = 1000
_IDLE_S: Final = 5.0  # followers ask again after half a second, and then no more for eight
_TOPIC: Final = "idle"
_NODES: Final = 3


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[NodeProcesses]:
    with NodeProcesses(tmp_path / "cluster", _NODES, {"replica.lag.time.max.ms": _LAG_MS}) as made:
        yield made


@pytest.mark.long
def test_the_first_record_after_an_idle_period_throws_nobody_out(nodes: NodeProcesses) -> None:
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers})
    topic = NewTopic(_TOPIC, 4, _NODES, config={"min.insync.replicas": str(_NODES)})
    admin.create_topics([topic])[_TOPIC].result(_WAIT_S)

    def in_sync() -> bool:
        partitions = admin.list_topics(_TOPIC, timeout=_WAIT_S).topics[_TOPIC].partitions.values()
        return all(len(partition.isrs) == _NODES for partition in partitions)

    errors: list[KafkaError | None] = []
    settings = {"bootstrap.servers": nodes.bootstrap_servers, "acks": "all", "retries": 0}
    producer = Producer(settings)

    def produce() -> None:
        for partition in range(4):
            producer.produce(_TOPIC, b"x", partition=partition, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(_WAIT_S) == 0

    until(in_sync, _WAIT_S)
    produce()
    idle_until = time.monotonic() + _IDLE_S
    until(lambda: time.monotonic() > idle_until, _WAIT_S)
    produce()
    assert errors == [None] * 8
    assert in_sync()
