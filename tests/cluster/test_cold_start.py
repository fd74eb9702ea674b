"""Every node of a cluster is killed, and some come back: what two of three replicas have is served at once."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.cli.command import run
from tests.clients import unready, until
from tests.untyped import untyped

from duramen.node.processes import NodeProcesses

_WAIT_S: Final = 60.0
_TOPIC: Final = "cold"
_PARTITIONS: Final = 3
_RECORDS: Final = 60
_QUIET: Final = {"log_level": 0}


class Cold:
    """Some nodes, and a stream with three replicas whose config is not set."""

    def __init__(self, nodes: NodeProcesses) -> None:
        self.nodes = nodes
        self.admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers, **_QUIET})

    def fill(self, assignment: list[list[int]] | None = None) -> None:
        """Create the stream, write to it, and commit a group's offsets."""
        placed = {"replica_assignment": assignment} if assignment else {"replication_factor": 3}
        topic = NewTopic(_TOPIC, _PARTITIONS, **placed)
        self.admin.create_topics([topic])[_TOPIC].result(_WAIT_S)
        self.produce(_RECORDS)
        settings = {"bootstrap.servers": self.nodes.bootstrap_servers, "group.id": "cold", **_QUIET}
        with contextlib.closing(Consumer(settings)) as consumer:
            consumer.commit(offsets=[TopicPartition(_TOPIC, 0, 1)], asynchronous=False)
        replicas = len(assignment[0]) if assignment else 3
        until(lambda: all(in_sync == replicas for _, in_sync in self.partitions(_TOPIC)), _WAIT_S)

    def produce(self, count: int) -> None:
        """Have so many records acknowledged."""
        producer = Producer({"bootstrap.servers": self.nodes.bootstrap_servers, "acks": "all", **_QUIET})
        failed: list[object] = []
        for number in range(count):
            producer.produce(
                _TOPIC, b"%d" % number, partition=number % _PARTITIONS,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )  # fmt: skip
        assert producer.flush(_WAIT_S) == 0
        assert failed == []

    def configure(self, name: str, value: str) -> None:
        """Set a config of the stream."""
        admin = untyped("confluent_kafka.admin")
        entry = admin.ConfigEntry(name, value, incremental_operation=admin.AlterConfigOpType.SET)
        resource = admin.ConfigResource(admin.ResourceType.TOPIC, _TOPIC, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(_WAIT_S)

    def partitions(self, *names: str) -> list[tuple[int, int]]:
        """Leader and number of replicas in sync of each partition."""
        topics = self.admin.list_topics(timeout=_WAIT_S).topics
        return [(one.leader, len(one.isrs)) for name in names for one in topics[name].partitions.values()]

    def stored(self) -> int:
        """How many records consumers see."""
        latest = untyped("confluent_kafka.admin").OffsetSpec.latest()
        places = {TopicPartition(_TOPIC, number): latest for number in range(_PARTITIONS)}
        try:
            return sum(found.result(_WAIT_S).offset for found in self.admin.list_offsets(places).values())
        except KafkaException:  # OFFSET_NOT_AVAILABLE, which librdkafka does not retry here
            return -1

    def groups(self) -> str:
        """What a node that is there says of groups, or that it cannot know."""
        said = run("group", "list", server=self.nodes.nodes[1].http)
        assert said.code != 0 or "cold" in said.out, said.out + said.err
        return said.out if said.code == 0 else ""

    def serves(self, live: set[int], stored: int) -> None:
        """Wait until nodes that are there serve all of it: the stream, the broker's own, and the group."""
        names = (_TOPIC, "__consumer_offsets")
        until(lambda: all(leader in live for leader, _ in self.partitions(*names)), _WAIT_S)
        until(lambda: self.stored() == stored, _WAIT_S)
        until(self.groups, _WAIT_S)
        self.produce(_PARTITIONS)


@contextlib.contextmanager
def _cold(directory: Path, count: int) -> Iterator[Cold]:
    nodes = NodeProcesses(directory, count, {"offsets.topic.num.partitions": 3})
    try:
        nodes.start()
        yield Cold(nodes)
        for number, log in nodes.logs().items():
            assert "Traceback" not in log, f"node {number}: {log}"
    finally:
        nodes.kill(*nodes.running)
        nodes.close()


def test_two_of_three_nodes_serve_what_all_had(tmp_path: Path) -> None:
    with _cold(tmp_path, 3) as cold:
        cold.fill()
        resource_of = untyped("confluent_kafka.admin").ConfigResource
        resource = resource_of(resource_of.Type.TOPIC, _TOPIC)
        config = cold.admin.describe_configs([resource])[resource].result(_WAIT_S)["min.insync.replicas"]
        assert (config.value, config.is_default) == ("2", True)
        cold.nodes.kill(1, 2, 3)
        cold.nodes.start([1, 2])
        cold.serves({1, 2}, _RECORDS)


@pytest.mark.long
def test_an_unclean_election_says_first_what_it_costs(tmp_path: Path) -> None:
    with _cold(tmp_path, 3) as cold:
        cold.fill([[2, 3]] * _PARTITIONS)
        cold.nodes.kill(3)
        until(lambda: cold.partitions(_TOPIC) == [(2, 1)] * _PARTITIONS, _WAIT_S)
        cold.produce(_RECORDS)  # only node 2 has these
        cold.nodes.kill(2)
        until(lambda: "no controller is known" in unready(cold.nodes.nodes[1]), _WAIT_S)
        cold.nodes.start([3])
        until(lambda: {leader for leader, _ in cold.partitions(_TOPIC)} == {-1}, _WAIT_S)
        end = str(_RECORDS // _PARTITIONS)
        server = cold.nodes.nodes[1].http
        said = run("cluster", "elect", _TOPIC, "--unclean", "--yes", server=server)
        assert said.code == 0, said.out + said.err
        plan = [line.split() for line in said.err.splitlines()]
        assert [_TOPIC, "0", "3", end, end, "0", "2"] in plan
        assert "is not known" in said.err
        cold.serves({1, 3}, _RECORDS)


@pytest.mark.long
def test_the_last_replica_in_sync_is_not_waited_for_where_another_has_as_much(tmp_path: Path) -> None:
    with _cold(tmp_path, 5) as cold:
        cold.fill([[1, 2, 3]] * _PARTITIONS)
        for number in (1, 2):
            cold.nodes.kill(number)
            until(lambda: all(in_sync == 3 - number for _, in_sync in cold.partitions(_TOPIC)), _WAIT_S)  # noqa: B023
        cold.nodes.kill(3, 4, 5)
        cold.nodes.start([1, 2, 4])
        until(lambda: all(leader in {1, 2} for leader, _ in cold.partitions(_TOPIC)), _WAIT_S)
        until(lambda: cold.stored() == _RECORDS, _WAIT_S)
        cold.produce(_PARTITIONS)


@pytest.mark.long
def test_a_stream_that_allows_it_gets_the_most_complete_live_replica_as_its_leader(tmp_path: Path) -> None:
    with _cold(tmp_path, 5) as cold:
        cold.fill([[1, 2, 3]] * _PARTITIONS)
        cold.configure("min.insync.replicas", "1")
        for number in (1, 2):
            cold.nodes.kill(number)
            until(lambda: all(in_sync == 3 - number for _, in_sync in cold.partitions(_TOPIC)), _WAIT_S)  # noqa: B023
            cold.produce(_RECORDS)
        cold.nodes.kill(3)
        cold.nodes.start([1, 2])
        until(lambda: {leader for leader, _ in cold.partitions(_TOPIC)} == {-1}, _WAIT_S)
        until(lambda: all(not unready(cold.nodes.nodes[number]) for number in (1, 2)), _WAIT_S)
        cold.configure("unclean.leader.election.enable", "true")
        until(lambda: {leader for leader, _ in cold.partitions(_TOPIC)} == {2}, _WAIT_S)
        until(lambda: cold.stored() == 2 * _RECORDS, _WAIT_S)
