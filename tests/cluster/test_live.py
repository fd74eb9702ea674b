"""Live topics on real nodes whose leaders are killed: readers go on at the next leader, and come to the same state."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.clients import until
from tests.cluster import live_topics

import duramen
from duramen.node.processes import NodeProcesses

_WAIT_S = 60.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcesses]:
    path: Path = tmp_path_factory.mktemp("live")
    with NodeProcesses(path, settings={"group.initial.rebalance.delay.ms": 0}) as found:
        yield found
        for log in found.logs().values():
            assert "Traceback" not in log


@pytest.mark.long
def test_readers_go_on_at_the_next_leader(nodes: NodeProcesses) -> None:
    live = live_topics.create(nodes, "seats")
    live_topics.write(nodes.bootstrap_servers, "seats", 0, 2000)
    small = {"fetch.message.max.bytes": 300, "queued.min.messages": 1}
    readers = [
        live_topics.LiveConsumer(nodes.bootstrap_servers, live, **{"group.id": f"seats{number}", **config})
        for number, config in enumerate((small, {}))
    ]
    for reader in readers:
        reader.read_to({0: 0})
    killed = live_topics.leaders(nodes.bootstrap_servers, live)[0]
    nodes.nodes[killed].kill()
    others = ",".join(node.kafka for number, node in nodes.nodes.items() if number != killed)
    until(
        lambda: live_topics.has_leaders(others, live) and killed not in live_topics.leaders(others, live).values(),
        _WAIT_S,
    )
    _, ends = live_topics.write(others, "seats", 2000, 2000)
    nodes.nodes[killed].start()
    until(lambda: live_topics.has_leaders(nodes.nodes[killed].kafka, live), _WAIT_S)
    with duramen.connect(nodes.nodes[killed].http) as client:
        wanted = {(one.partition, one.key): one.value for one in client.snapshot("seats") if one.value is not None}
    for reader in readers:
        reader.read_to(ends)
        assert reader.state == wanted
        reader.consumer.close()


@pytest.mark.long
def test_transactions_are_shown_once_they_are_committed(nodes: NodeProcesses) -> None:
    live = live_topics.create(nodes, "orders")
    _, ends = live_topics.write(nodes.bootstrap_servers, "orders", 0, 300)
    reader = live_topics.LiveConsumer(nodes.bootstrap_servers, live, **{"isolation.level": "read_uncommitted"})
    reader.read_to(ends)
    before = dict(reader.state)
    producer = Producer({"bootstrap.servers": nodes.bootstrap_servers, "transactional.id": "orders"})
    producer.init_transactions(_WAIT_S)
    for value, commits in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        for partition in range(live_topics.PARTITIONS):
            producer.produce("orders", key=b"in all", value=value, partition=partition)
        producer.flush(_WAIT_S)
        (producer.commit_transaction if commits else producer.abort_transaction)(_WAIT_S)
    # One record and a marker twice.
    reader.read_to({partition: end + 4 for partition, end in ends.items()})
    wanted = {(partition, b"in all"): b"committed" for partition in range(live_topics.PARTITIONS)}
    assert reader.state == before | wanted
    reader.consumer.close()
