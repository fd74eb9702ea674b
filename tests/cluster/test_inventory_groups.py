"""Groups of a cluster of three real nodes keep their offsets in topics of the inventory whatever these are called."""

from contextlib import closing, suppress
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import AcknowledgeType, Consumer, KafkaException, Producer, ShareConsumer, TopicPartition
from tests.clients import CONFLUENT, Record, metric, until
from tests.doors.kafka.asking import Asking
from tests.doors.kafka.sharing import RawShareConsumer
from tests.doors.kafka.test_inventory_groups import Offsets, goes_on

from duramen.base.errors import CoordinatorLoading, DuramenError, NotCoordinator, NotLeader
from duramen.client.api.client import Client, connect
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess
from duramen.node.processes import NodeProcesses

WAIT_S = 60.0
SETTINGS = {
    "inventory.shards": 3, "inventory.queue.shards": 3, "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0, "group.consumer.heartbeat.interval.ms": 1000,
    "offsets.retention.check.interval.ms": 1000, "inventory.metadata.namespace": "acme/prod",
}  # fmt: skip


def coordinator(nodes: NodeProcesses, group: str) -> NodeProcess:
    """The node that coordinates a group."""
    found: list[int] = []

    def look() -> bool:
        for node in nodes.nodes.values():
            try:
                with Asking(node) as asking:
                    answer = asking.ask(ApiKey.FIND_COORDINATOR, 2, {"key": group, "key_type": 0})
            except OSError:
                continue
            if not answer["error_code"] and nodes.nodes[answer["node_id"]].running:
                found.append(answer["node_id"])
                return True
        return False

    until(look, WAIT_S)
    return nodes.nodes[found[-1]]


def gone(client: Client, path: str) -> bool:
    """Delete a topic; whether that is done, by this request or one before."""
    try:
        client.inventory.delete_topic(path)
    except DuramenError as error:
        return error.id == "topic-not-found"
    return True


def commit_in_transaction(nodes: NodeProcesses, group: str, topic: str, offset: int) -> None:
    """Commit an offset by a producer."""
    consumer = Consumer({"bootstrap.servers": nodes.bootstrap_servers, "group.id": group})
    producer = Producer({"bootstrap.servers": nodes.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    place = TopicPartition(topic, 0, offset)
    producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), WAIT_S)
    producer.commit_transaction(WAIT_S)
    consumer.close()


@pytest.mark.long
def test_offsets_follow_the_topic_to_another_coordinator(tmp_path: Path) -> None:
    old, new, alias = "acme.prod.a", "acme.dev.b", "acme.dev.c"
    with NodeProcesses(tmp_path, 3, SETTINGS) as nodes:
        clients = {number: connect(node.http) for number, node in nodes.nodes.items()}
        inventory = clients[1].inventory
        inventory.create_tenants(["acme"])
        until(lambda: not clients[2].inventory.create_namespaces("acme", ["prod", "dev"]).failed, WAIT_S)
        inventory.create_topics("acme/prod", ["a"])
        inventory.alias("acme/dev/c", "acme/prod/a")
        stored = "~" + UUID(inventory.topic("acme/prod/a").id).hex
        places = CONFLUENT.produce(nodes.bootstrap_servers, old, [Record(b"%d" % number) for number in range(10)])
        first = coordinator(nodes, "g")
        with Asking(first) as asking:
            offsets = Offsets(asking, "g")
            until(lambda: offsets.commit(old, places[4].offset) == 0, WAIT_S)
            assert offsets.fetch(alias) == {alias: places[4].offset}
            clients[3].inventory.move_topic("acme/prod/a", "acme/dev/b")
            assert offsets.fetch() == {new: places[4].offset}
            assert offsets.fetch(old, new, alias) == {old: -1, new: places[4].offset, alias: places[4].offset}
            assert offsets.commit(old, places[5].offset) == 0
            assert offsets.commit("acme.prod.other", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert offsets.commit(stored, 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert offsets.fetch(stored) == {stored: -1}
            commit_in_transaction(nodes, "g", alias, places[6].offset)
            until(lambda: offsets.fetch(new) == {new: places[6].offset}, WAIT_S)
        for client in clients.values():
            (shown,) = client.groups.describe("g").offsets
            assert (shown.stream, shown.committed_offset, shown.lag_records) == (new, places[6].offset, 4)
        until(lambda: metric(first, "duramen_group_lag_records", group="g", stream=new, partition="0") == 4, WAIT_S)
        first.kill()
        second = coordinator(nodes, "g")
        assert second is not first
        with Asking(second) as asking, connect(second.http) as client:
            offsets = Offsets(asking, "g")
            until(lambda: offsets.fetch() == {new: places[6].offset}, WAIT_S)
            assert offsets.fetch(alias, old) == {alias: places[6].offset, old: -1}
            assert offsets.delete(alias) == 0
            assert offsets.fetch() == {}
            assert offsets.commit(new, places[7].offset) == 0
            until(lambda: gone(client, "acme/dev/c") and gone(client, "acme/dev/b"), WAIT_S)
            assert offsets.fetch() == {}
            until(lambda: "g" not in [group.id for group in client.groups.list()], WAIT_S)
        for client in clients.values():
            client.close()


@pytest.mark.long
def test_groups_go_on_after_a_rename(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3, SETTINGS) as nodes:
        with connect(nodes.nodes[1].http) as client, connect(nodes.nodes[2].http) as other:
            client.inventory.create_tenants(["acme"])
            until(lambda: not other.inventory.create_namespaces("acme", ["prod", "dev"]).failed, WAIT_S)
        for number, how in enumerate(("pattern", "alias", "subscription")):
            for protocol in ("consumer", "classic"):
                goes_on(nodes.nodes[1 + number], how, protocol)


@pytest.mark.long
def test_offsets_are_reset_at_any_node(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3, SETTINGS) as nodes:
        servers = nodes.bootstrap_servers
        clients = {number: connect(node.http) for number, node in nodes.nodes.items()}
        clients[1].inventory.create_tenants(["acme"])
        until(lambda: not clients[2].inventory.create_namespaces("acme", ["prod"]).failed, WAIT_S)
        topics = [f"acme.prod.t{number}" for number in range(6)]
        clients[3].inventory.create_topics("acme/prod", [topic.rpartition(".")[2] for topic in topics])
        clients[1].streams.create("mail", partitions=3, config={"kind": "queues", "queue.topic.prefix": "mail."})
        topics += ["mail.ann", "mail.bob"]
        records = [Record(b"%d" % number, timestamp_ms=1000 + number) for number in range(10)]
        places = {topic: [one.offset for one in CONFLUENT.produce(servers, topic, records)] for topic in topics}

        def reset(number: int, to: str, *names: str) -> dict[str, int]:
            found = dict[str, int]()

            def done() -> bool:
                try:
                    moved = clients[number].groups.reset("g", to, streams=[*names] or None)
                except (NotLeader, NotCoordinator, CoordinatorLoading):
                    return False
                found.update({one.stream: one.after for one in moved})
                return True

            until(done, WAIT_S)
            return found

        assert reset(1, "start", *topics) == {topic: at[0] for topic, at in places.items()}
        for number in nodes.nodes:
            assert reset(number, "end") == {topic: at[9] + 1 for topic, at in places.items()}
            assert reset(number, "-3") == {topic: at[7] for topic, at in places.items()}
            assert reset(number, "@1006") == {topic: at[6] for topic, at in places.items()}
            for topic in (topics[0], "mail.bob"):
                assert reset(number, str(places[topic][2]), topic) == {topic: places[topic][2]}
            for missing in ("acme.prod.nothing", "acme.nowhere.t0"):
                with pytest.raises(DuramenError, match=missing):
                    clients[number].groups.reset("g", "start", streams=[missing])
        clients[2].inventory.move_topic("acme/prod/t0", "acme/prod/moved")
        places["acme.prod.moved"] = places.pop("acme.prod.t0")
        coordinator(nodes, "g").kill()
        for number, node in nodes.nodes.items():
            if node.running:
                assert reset(number, "start") == {topic: at[0] for topic, at in places.items()}
                assert reset(number, "-1") == {topic: at[9] for topic, at in places.items()}
        for client in clients.values():
            client.close()


def shared_values(consumer: ShareConsumer, count: int) -> list[bytes | None]:
    """Read and accept so many records."""
    found: list[bytes | None] = []

    def read() -> bool:
        messages = [message for message in consumer.poll(timeout=1.0) if message.error() is None]
        for message in messages:
            consumer.acknowledge(message, AcknowledgeType.ACCEPT)
        with suppress(KafkaException):  # it is delivered again
            if messages and not any(consumer.commit_sync(timeout=WAIT_S).values()):
                found.extend(message.value() for message in messages)
        return len(found) >= count

    until(read, WAIT_S)
    return found


@pytest.mark.long
def test_a_share_group_goes_on_after_a_rename_and_after_the_loss_of_a_node(tmp_path: Path) -> None:
    settings = SETTINGS | {"share.coordinator.state.topic.prune.interval.ms": 1000, "nats.server": "off"}
    with (
        NodeProcesses(tmp_path, 3, settings) as nodes, connect(nodes.nodes[1].http) as client,
        connect(nodes.nodes[2].http) as other,
    ):  # fmt: skip
        client.inventory.create_tenants(["acme"])
        client.inventory.create_namespaces("acme", ["prod"])
        client.inventory.create_topics("acme/prod", ["a"])
        operator = RawShareConsumer(nodes.nodes[1], "s", "acme.prod.a", "operator")
        operator.configure(share_auto_offset_reset="earliest")
        operator.connection.close()
        config = {
            "bootstrap.servers": nodes.bootstrap_servers, "group.id": "s", "share.acknowledgement.mode": "explicit",
            "topic.metadata.refresh.interval.ms": 300, "log_level": 0,
        }  # fmt: skip
        with closing(ShareConsumer(config)) as consumer:
            consumer.subscribe(["acme.prod.a"])
            CONFLUENT.produce(nodes.bootstrap_servers, "acme.prod.a", [Record(b"1"), Record(b"2")])
            assert shared_values(consumer, 2) == [b"1", b"2"]
            client.inventory.move_topic("acme/prod/a", "acme/prod/b")
            consumer.subscribe(["acme.prod.b"])
            CONFLUENT.produce(nodes.bootstrap_servers, "acme.prod.b", [Record(b"3")])
            assert shared_values(consumer, 1) == [b"3"]
        nodes.nodes[3].kill()
        with closing(ShareConsumer(config)) as consumer:
            consumer.subscribe(["acme.prod.b"])
            CONFLUENT.produce(nodes.bootstrap_servers, "acme.prod.b", [Record(b"4")])
            assert shared_values(consumer, 1) == [b"4"]
            for one in (client, other):
                (offset,) = one.groups.describe("s").offsets
                assert (offset.stream, offset.lag_records) == ("acme.prod.b", 0)
        until(lambda: gone(client, "acme/prod/b"), WAIT_S)
        until(lambda: not client.groups.list(), WAIT_S)
