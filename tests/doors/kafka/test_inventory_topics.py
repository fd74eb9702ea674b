"""Topics of the inventory with Kafka clients: produced to, consumed, renamed, moved, with aliases."""

import shutil
import subprocess
from pathlib import Path
from typing import Final, Self
from uuid import UUID

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from tests.clients import CONFLUENT, Library, Record, until
from tests.doors.kafka.asking import Asking
from tests.doors.kafka.test_sequences import Producer as SequencedProducer

import duramen
from duramen.bench.peers.kafka import fetch_jars
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

_DRIVER: Final = Path(__file__).parent / "java" / "ProducerDriver.java"


class JavaProducer:
    """A KafkaProducer in a process of its own."""

    def __init__(self, node: NodeProcess) -> None:
        java = shutil.which("java")
        assert java is not None, "this test needs Java 17"
        self._process = subprocess.Popen(
            [java, "-Xmx128m", "-cp", f"{fetch_jars()}/*", str(_DRIVER), node.kafka],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)

    def _answer(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line == "ok", line

    def send(self, topic: str, value: str) -> None:
        """Send a record; it is acknowledged then."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{topic} {value}\n")
        self._process.stdin.flush()
        self._answer()


def test_a_topic_keeps_its_records_under_each_name(node: NodeProcess, tenant: str, library: Library) -> None:
    topic = f"{tenant}.prod.orders.eu"
    with duramen.connect(node.http) as client:
        inventory = client.inventory
        inventory.create_topics(f"{tenant}/prod", ["orders.eu"])
        library.produce(node.kafka, topic, [Record(b"1", b"key")])
        inventory.move_topic(f"{tenant}/prod/orders.eu", f"{tenant}/dev/orders", keep_alias=True)
        library.produce(node.kafka, f"{tenant}.dev.orders", [Record(b"2", b"key")])
        library.produce(node.kafka, topic, [Record(b"3", b"key")])
    for name in (topic, f"{tenant}.dev.orders"):
        assert [read.value for read in library.consume(node.kafka, name, 1, 3)] == [b"1", b"2", b"3"]


def test_one_producer_writes_under_two_names(node: NodeProcess, tenant: str) -> None:
    names = [f"{tenant}.prod.a", f"{tenant}.dev.alias"]
    with duramen.connect(node.http) as client:
        client.inventory.create_topics(f"{tenant}/prod", ["a"])
        client.inventory.alias(f"{tenant}/dev/alias", f"{tenant}/prod/a")
    producer = Producer({"bootstrap.servers": node.kafka, "enable.idempotence": True, "linger.ms": 0})
    values = [b"%d" % number for number in range(20)]
    for number, value in enumerate(values):
        producer.produce(names[number % 2], value)
        assert producer.flush(30) == 0
    assert [read.value for read in CONFLUENT.consume(node.kafka, names[0], 1, len(values))] == values


@pytest.mark.long
def test_a_java_producer_writes_under_all_names(node: NodeProcess, tenant: str) -> None:
    first, second, alias, last = (f"{tenant}.{name}" for name in ("prod.a", "dev.b", "dev.alias", "prod.c"))
    sent = list[bytes]()
    with duramen.connect(node.http) as client, JavaProducer(node) as producer:

        def send(*topics: str) -> None:
            for topic in topics * 3:
                sent.append(b"%d" % len(sent))
                producer.send(topic, sent[-1].decode())

        inventory = client.inventory
        inventory.create_topics(f"{tenant}/prod", ["a"])
        inventory.alias(f"{tenant}/dev/alias", f"{tenant}/prod/a")
        send(first, alias)
        inventory.move_topic(f"{tenant}/prod/a", f"{tenant}/dev/b", keep_alias=True)
        send(first, second, alias)
        inventory.move_topic(f"{tenant}/dev/b", f"{tenant}/prod/c")
        send(last, alias, first)
        with pytest.raises(AssertionError, match="error"):
            producer.send(second, "never")
        send(last)
    assert [read.value for read in CONFLUENT.consume(node.kafka, last, 1, len(sent))] == sent


def test_names_lead_to_topics_as_they_are_now(node: NodeProcess, tenant: str, admin: AdminClient) -> None:
    old, new, alias = (f"{tenant}.{name}" for name in ("prod.a", "prod.b", "dev.c"))
    with Asking(node) as asking, duramen.connect(node.http) as client:

        def metadata(*names: str) -> list[tuple[int, UUID]]:
            topics = [{"name": name, "topic_id": UUID(int=0)} for name in names]
            answer = asking.ask(ApiKey.METADATA, 12, {"topics": topics, "allow_auto_topic_creation": True})
            return [(topic["error_code"], topic["topic_id"]) for topic in answer["topics"]]

        inventory = client.inventory
        unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UUID(int=0))
        assert metadata(old) == [unknown]
        inventory.create_topics(f"{tenant}/prod", ["a"])
        ((error, first_id),) = metadata(old)
        assert error == 0
        inventory.alias(f"{tenant}/dev/c", f"{tenant}/prod/a")
        inventory.move_topic(f"{tenant}/prod/a", f"{tenant}/prod/b")
        found = metadata(old, new, alias)
        assert [one[0] for one in found] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0]
        assert len({first_id, *(topic_id for _, topic_id in found)}) == 4
        by_id = asking.ask(ApiKey.METADATA, 12, {"topics": [{"name": None, "topic_id": found[1][1]}]})
        assert [topic["name"] for topic in by_id["topics"]] == [new]
        assert metadata(*(f"{tenant}.prod.none-{number}" for number in range(50))) == [unknown] * 50
    for taken, code in ((f"{tenant}.x.y", "TOPIC_EXCEPTION"), (new, "TOPIC_ALREADY_EXISTS")):
        for checked in (True, False):
            with pytest.raises(KafkaException, match=code):
                admin.create_topics([NewTopic(taken, 1)], validate_only=checked)[taken].result(30)
    admin.create_topics([NewTopic(f"{tenant}.x", 1)])[f"{tenant}.x"].result(30)
    space = NewTopic(f"{tenant}-space", 1, config={"kind": "queues", "queue.topic.prefix": f"{tenant}.q."})
    with pytest.raises(KafkaException):
        admin.create_topics([space])[f"{tenant}-space"].result(30)
    keyed = NewTopic(f"{tenant}-keyed", 1, config={"keyed": "true", "keyed.live.topic": f"{tenant}.x.live"})
    with pytest.raises(
        KafkaException, match=f"keyed.live.topic={tenant}.x.live is the name of a topic of the inventory"
    ):
        admin.create_topics([keyed])[f"{tenant}-keyed"].result(30)
    with duramen.connect(node.http) as client:
        client.streams.create(f"{tenant}-keyed", config={"keyed": True})
        with pytest.raises(duramen.errors.ConfigInvalid, match="is the name of a topic of the inventory"):
            client.streams.alter(f"{tenant}-keyed", config={"keyed.live.topic": f"{tenant}.x.live"})


def test_what_needs_a_stream_is_refused_by_name(node: NodeProcess, tenant: str, admin: AdminClient) -> None:
    topic = f"{tenant}.prod.orders"
    with duramen.connect(node.http) as client:
        client.inventory.create_topics(f"{tenant}/prod", ["orders"])
    why = f"{topic} is a topic of the inventory, not a stream"
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    compact = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource.add_incremental_config(compact)
    for refused, said in (
        (admin.create_partitions([NewPartitions(topic, 3)])[topic], why),
        (admin.incremental_alter_configs([resource])[resource], why),
        (admin.delete_topics([topic])[topic], "Policy violation"),  # this client's version has no place for a message
    ):
        with pytest.raises(KafkaException, match=said) as raised:
            refused.result(30)
        assert raised.value.args[0].name() == "POLICY_VIOLATION"
    producer = Producer({"bootstrap.servers": node.kafka, "transactional.id": topic, "transaction.timeout.ms": 10_000})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"1")
    with pytest.raises(KafkaException, match="Policy violation"):
        producer.commit_transaction(30)


def test_transactions_on_topics_that_take_none_are_refused_alike_and_reported(
    node: NodeProcess, tenant: str, admin: AdminClient
) -> None:
    with duramen.connect(node.http) as client:
        client.inventory.create_topics(f"{tenant}/prod", ["orders"])
        client.inventory.alias(f"{tenant}/prod/other", f"{tenant}/prod/orders")
    space = NewTopic(f"{tenant}-q", 2, config={"kind": "queues", "queue.topic.prefix": f"{tenant}-q."})
    for future in admin.create_topics([space, NewTopic(f"{tenant}-s", 1)]).values():
        future.result(30)
    refused = [f"{tenant}.prod.orders", f"{tenant}.prod.other", f"{tenant}-q.ann", f"{tenant}-q"]
    codes = dict.fromkeys(refused, ErrorCode.POLICY_VIOLATION)
    codes |= {f"{tenant}-s": ErrorCode.OPERATION_NOT_ATTEMPTED, "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    codes |= {"__transaction_state": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    fields = {"transactional_id": tenant, "transaction_timeout_ms": 9000, "producer_id": -1, "producer_epoch": -1}
    with Asking(node) as asking:
        begun = asking.ask(ApiKey.INIT_PRODUCER_ID, 4, fields)
        wish = {
            "v3_and_below_transactional_id": tenant,
            "v3_and_below_producer_id": begun["producer_id"], "v3_and_below_producer_epoch": begun["producer_epoch"],
            "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in codes],
        }  # fmt: skip
        for version in range(4):
            answered = asking.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, wish)["results_by_topic_v3_and_below"]
            assert {
                topic["name"]: topic["results_by_partition"][0]["partition_error_code"] for topic in answered
            } == codes
    reported = [line for line in node.log_path.read_text().splitlines() if "a transaction was refused" in line]
    assert "not a stream" in reported[0]
    assert len(reported) <= 2  # at most one a minute


def test_a_dangling_alias_is_no_topic_that_auto_creation_makes(node: NodeProcess, tenant: str) -> None:
    with duramen.connect(node.http) as client:
        inventory = client.inventory
        inventory.create_namespaces(tenant, ["gone"])
        inventory.create_topics(f"{tenant}/gone", ["x"])
        inventory.alias(f"{tenant}/prod/alias", f"{tenant}/gone/x")
        inventory.policies.set(tenant, {"auto.create.topics.enable": True})
        inventory.delete_namespace(f"{tenant}/gone")
    wish = {
        "topics": [{"topic_id": UUID(int=0), "name": f"{tenant}.prod.{name}"} for name in ("alias", "new")],
        "allow_auto_topic_creation": True,
    }
    with Asking(node) as asking:
        answered = asking.ask(ApiKey.METADATA, 12, wish)["topics"]
    codes = {topic["name"].rpartition(".")[2]: topic["error_code"] for topic in answered}
    assert codes == {"alias": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "new": ErrorCode.NONE}


def test_a_tenant_hides_no_stream(node: NodeProcess, admin: AdminClient) -> None:
    streams = [NewTopic("debezium.public.users", 1), NewTopic("plain.users", 1)]
    streams.append(NewTopic("hidden", 1, config={"kind": "queues", "queue.topic.prefix": "hidden.q."}))
    streams.append(NewTopic("seen", 1, config={"keyed": "true", "keyed.live.topic": "shown.prod.users"}))
    for future in admin.create_topics(streams).values():
        future.result(30)
    with duramen.connect(node.http) as client:
        made = client.inventory.create_tenants(["debezium", "plain", "hidden", "public", "shown"])
        assert (made.created, sorted(made.failed)) == (2, ["debezium", "hidden", "shown"])
        with pytest.raises(duramen.errors.InventoryNameInvalid):
            client.inventory.update_tenant("public", name="debezium")


def test_records_go_with_the_topic(node: NodeProcess, tenant: str) -> None:
    topic = f"{tenant}.prod.orders"
    with duramen.connect(node.http) as client:
        inventory = client.inventory
        inventory.create_topics(f"{tenant}/prod", ["orders"])
        CONFLUENT.produce(node.kafka, topic, [Record(b"1")])
        lasting_id = UUID(inventory.topic(f"{tenant}/prod/orders").id).hex
        records = client.queues("__inventory_queues")
        assert [entry.value for entry in records.retrieve(lasting_id).entries] == [b"1"]
        inventory.alias(f"{tenant}/dev/alias", f"{tenant}/prod/orders")
        inventory.delete_topic(f"{tenant}/dev/alias")
        assert records.retrieve(lasting_id).entries
        inventory.delete_topic(f"{tenant}/prod/orders")
        assert not records.retrieve(lasting_id).entries


def test_records_go_with_the_namespace(node: NodeProcess, tenant: str) -> None:
    topic = f"{tenant}.prod.orders"
    with duramen.connect(node.http) as client:
        inventory, records = client.inventory, client.queues("__inventory_queues")
        inventory.create_topics(f"{tenant}/prod", ["orders", "payments"])
        inventory.create_topics(f"{tenant}/dev", ["kept"])
        for name in (topic, f"{tenant}.prod.payments", f"{tenant}.dev.kept"):
            CONFLUENT.produce(node.kafka, name, [Record(b"1")])
        inventory.policies.set(tenant, {"quota.bytes": 1_000_000})
        kept = UUID(inventory.topic(f"{tenant}/dev/kept").id).hex
        gone = {UUID(inventory.topic(f"{tenant}/prod/{name}").id).hex for name in ("orders", "payments")}
        assert gone <= set(records.queues())
        used = inventory.policies.describe(tenant).quotas[0].used
        inventory.delete_namespace(f"{tenant}/prod")
        assert inventory.policies.describe(tenant).quotas[0].used == used // 3
        until(lambda: gone.isdisjoint(records.queues()))
        assert kept in records.queues()
        inventory.create_namespaces(tenant, ["prod"])
        inventory.create_topics(f"{tenant}/prod", ["orders"])
        CONFLUENT.produce(node.kafka, topic, [Record(b"2")])
        assert [record.value for record in CONFLUENT.consume(node.kafka, topic, 1, 1)] == [b"2"]


def test_a_batch_that_came_before_its_topic_is_sent_again_before_later_ones(node: NodeProcess, tenant: str) -> None:
    with duramen.connect(node.http) as client, Asking(node) as asking:
        producer = SequencedProducer(asking, f"{tenant}.prod.new")
        assert producer.send(0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        client.inventory.create_topics(f"{tenant}/prod", ["new"])
        assert producer.send(1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [producer.send(sequence) for sequence in (0, 1, 1)] == [0, 0, 0]
        assert producer.send(9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
