"""A node whose disk is blank catches up at the rate that leaders are given, and has everything in the end."""

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.cli.command import run
from tests.clients import until

from duramen.node.processes import NodeProcesses

_WAIT_S = 90.0
_RECORDS = 40
_RATE = 1 << 20
_VALUE = bytes(100_000)  # four seconds of that rate, all together


def _in_sync(admin: AdminClient) -> list[int]:
    return [len(one.isrs) for one in admin.list_topics("a", timeout=_WAIT_S).topics["a"].partitions.values()]


def _leaders(admin: AdminClient) -> list[int]:
    return [one.leader for one in admin.list_topics("a", timeout=_WAIT_S).topics["a"].partitions.values()]


@pytest.mark.long
def test_a_blank_node_catches_up_at_a_rate(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3, {"leader.replication.throttled.rate": _RATE}) as nodes:
        config: dict[str, str | int | float | bool] = {"bootstrap.servers": nodes.bootstrap_servers}
        admin = AdminClient(config)
        admin.create_topics([NewTopic("a", 2, 3)])["a"].result(_WAIT_S)
        until(lambda: _in_sync(admin) == [3, 3], _WAIT_S)
        producer = Producer({**config, "acks": "all"})
        for number in range(_RECORDS):
            producer.produce("a", b"%d:" % number + _VALUE, partition=number % 2)
        assert producer.flush(_WAIT_S) == 0

        nodes.kill(3)
        shutil.rmtree(nodes.nodes[3].data_dir)
        until(lambda: _in_sync(admin) == [2, 2], _WAIT_S)
        nodes.start([3])
        # Who is in sync is acknowledged as ever, while others catch up.
        for number in range(_RECORDS):
            producer.produce("a", b"later", partition=number % 2)
        assert producer.flush(_WAIT_S) == 0
        until(lambda: _in_sync(admin) == [3, 3], _WAIT_S)

        for partition in (0, 1):
            run("cluster", "elect", "a", str(partition), "--leader", "3", server=nodes.nodes[1].http)
        until(lambda: _leaders(admin) == [3, 3], _WAIT_S)
        consumer = Consumer({**config, "group.id": "none", "enable.auto.commit": False})
        consumer.assign([TopicPartition("a", partition, 0) for partition in (0, 1)])
        found: list[bytes] = []
        until(lambda: _read(consumer, found) == 2 * _RECORDS, _WAIT_S)
        consumer.close()
        assert sorted(value.partition(b":")[0] for value in found) == sorted(
            [*(b"%d" % number for number in range(_RECORDS)), *([b"later"] * _RECORDS)]
        )


def _read(consumer: Consumer, found: list[bytes]) -> int:
    values = [message.value() for message in consumer.consume(100, timeout=0.2) if message.error() is None]
    found.extend(value for value in values if value is not None)
    return len(found)
