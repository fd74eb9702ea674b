"""Policies of the inventory as Kafka clients meet them: quotas, and topics made when they are asked for."""

import struct
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.clients import Library, Record
from tests.doors.kafka.asking import Asking
from tests.doors.kafka.by_hand import ByHand, ManualConnection
from tests.raw import batch_of

import duramen
from duramen.codec.kafka import fetch, produce
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.produce import PartitionData, ProduceRequest, TopicData
from duramen.codec.kafka.versions import ApiKey
from duramen.inventory.names import TopicPath
from duramen.node.process import NodeProcess
from duramen.sim.broker import CallbackResult

ACCOUNT = "default"
PRODUCE, FETCH = 9, 13
SIZE = 10_000


def metadata(asking: Asking, *names: str) -> list[int]:
    topics: list[dict[str, Any]] = [{"name": name} for name in names]
    answer = asking.ask(ApiKey.METADATA, 9, {"topics": topics, "allow_auto_topic_creation": True})
    return [topic["error_code"] for topic in answer["topics"]]


def test_topics_are_made_where_the_namespace_says_so(node: NodeProcess, tenant: str, library: Library) -> None:
    topic = f"{tenant}.prod.orders.eu"
    with duramen.connect(node.http) as client, Asking(node) as asking:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert metadata(asking, topic, f"{tenant}.dev.a") == [unknown, unknown]
        client.inventory.policies.set(tenant, {"auto.create.topics.enable": True, "quota.topics": 1})
        client.inventory.policies.set(f"{tenant}/dev", {"auto.create.topics.enable": False})
        library.produce(node.kafka, topic, [Record(b"1", b"key")])
        assert [read.value for read in library.consume(node.kafka, topic, 1, 1)] == [b"1"]
        assert client.inventory.topic(f"{tenant}/prod/orders.eu").name == "orders.eu"
        names = (f"{tenant}.dev.a", f"{tenant}.prod.b", f"{tenant}.nothing.a")
        assert metadata(asking, *names) == [unknown, ErrorCode.POLICY_VIOLATION, unknown]


def test_a_policy_says_how_many_records_are_kept(node: NodeProcess, tenant: str, library: Library) -> None:
    with duramen.connect(node.http) as client:
        client.inventory.create_topics(f"{tenant}/prod", ["a", "b"])
        client.inventory.policies.set(f"{tenant}/prod", {"retention.records": 2})
        client.inventory.policies.set(f"{tenant}/prod/b", {"retention.records": 3, "retention.ms": -1})
        for name in "ab":
            records = [Record(b"%d" % number, None) for number in range(5)]
            library.produce(node.kafka, f"{tenant}.prod.{name}", records)
        for name, values in (("a", [b"3", b"4"]), ("b", [b"2", b"3", b"4"])):
            read = library.consume(node.kafka, f"{tenant}.prod.{name}", 1, len(values))
            assert [one.value for one in read] == values
        found = client.inventory.policies.describe(f"{tenant}/prod/b").effective
        assert (found["retention.records"].value, found["retention.records"].source) == (3, "topic")


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_namespace_that_is_full_refuses_records_at_once(node: NodeProcess, tenant: str, *, idempotent: bool) -> None:
    topic = f"{tenant}.prod.full-{idempotent}"
    with duramen.connect(node.http) as client:
        policies = client.inventory.policies
        client.inventory.create_topics(f"{tenant}/prod", [f"full-{idempotent}"])
        policies.set(f"{tenant}/prod", {"quota.bytes": 3_000})
        producer = Producer({"bootstrap.servers": node.kafka, "enable.idempotence": idempotent, "linger.ms": 0})

        def send(value: bytes) -> int:
            answers = list[Any]()
            producer.produce(topic, value, on_delivery=lambda error, _: answers.append(error))
            assert producer.flush(20) == 0
            return 0 if answers[0] is None else int(answers[0].code())

        assert [send(bytes(2_000)), send(bytes(2_000))] == [0, ErrorCode.POLICY_VIOLATION]
        (quota,) = [one for one in policies.describe(f"{tenant}/prod").quotas if one.policy == "quota.bytes"]
        assert (quota.limit, 2_000 < quota.used < 2_100) == (3_000, True)
        with pytest.raises(duramen.errors.BytesQuotaExceeded, match=r"quota\.bytes"):
            client.produce(topic, [bytes(2_000)])
        policies.set(f"{tenant}/prod", {"quota.bytes": 10_000})
        assert send(bytes(2_000)) == 0


class Quotas:
    """A door with topics of the inventory, acme.prod.a and acme.dev.b, while time stands still."""

    def __init__(self) -> None:
        self.door = ByHand()
        inventory = self.door.manual.broker.inventory
        self.do(inventory.create_tenants, ACCOUNT, ["acme"], {})
        self.do(inventory.create_namespaces, ACCOUNT, "acme", ["prod", "dev"], {})
        for namespace, name in (("prod", "a"), ("dev", "b")):
            self.do(inventory.create_topics, inventory.namespace(ACCOUNT, "acme", namespace), [name])

    def do(self, ask: Any, *what: Any) -> Any:
        answer: CallbackResult[Any] = CallbackResult()
        ask(*what, answer)
        self.door.manual.settle()
        return answer.value

    def set(self, path: str, **changes: Any) -> None:
        self.do(self.door.manual.broker.inventory.policies.change, ACCOUNT, path.split("/"), changes)

    def used(self, path: str) -> dict[str, int]:
        found = self.door.manual.broker.inventory.policies.find(ACCOUNT, path.split("/"))
        return {one.policy: one.used for one in found.quotas}

    def produced(self, connection: ManualConnection, topic: str) -> int:
        """The throttle time."""
        topics = [TopicData(topic, [PartitionData(0, memoryview(batch_of(bytes(SIZE))))])]
        connection.send(ApiKey.PRODUCE, PRODUCE, b"".join(
            produce.encode_request(PRODUCE, ProduceRequest(None, -1, 1000, topics))
        ))  # fmt: skip
        self.door.manual.settle()
        answer = connection.answer(ApiKey.PRODUCE, PRODUCE)
        assert answer is not None
        (found,) = produce.decode_response(PRODUCE, *answer)
        assert [part.error_code for part in found.partitions] == [0]
        return int(struct.unpack(">i", answer[0][-5:-1])[0])

    def fetched(self, connection: ManualConnection, topic: str) -> int:
        """The throttle time."""
        connection.send(ApiKey.METADATA, 12, REQUESTS[ApiKey.METADATA].encode(12, {"topics": [{"name": topic}]}))
        metadata = connection.answer(ApiKey.METADATA, 12)
        assert metadata is not None
        (described,) = RESPONSES[ApiKey.METADATA].decode(12, *metadata)["topics"]
        request = FetchRequest(
            -1, 0, 1, 1 << 20, 0, 0, -1, [FetchTopic(described["topic_id"], [FetchPartition(0, 0, 1 << 20)])]
        )
        connection.send(ApiKey.FETCH, FETCH, fetch.encode_request(FETCH, request))
        answer = connection.answer(ApiKey.FETCH, FETCH)
        assert answer is not None
        code, parts = fetch.decode_response(FETCH, *answer)
        assert (code, [part.error_code for part in parts]) == (0, [0])
        assert sum(len(part.records) for part in parts) >= SIZE
        return int(struct.unpack_from(">i", *answer)[0])


def test_topics_of_a_tenant_share_its_rate_and_clients_are_told_to_wait() -> None:
    quotas = Quotas()
    first, second, other = (quotas.door.connect(name) for name in ("first", "second", "other"))
    assert quotas.produced(first, "acme.prod.a") == 0
    quotas.set("acme", producer_byte_rate=1000, consumer_byte_rate=500)
    assert quotas.produced(first, "acme.prod.a") < 2000
    assert 9_000 < quotas.produced(second, "acme.dev.b") < 13_000  # all of the tenant's topics count together
    assert not second.reads()
    assert quotas.used("acme/dev/b")["producer_byte_rate"] > 1000
    throttled = quotas.door.manual.broker.metrics.counter("duramen_inventory_throttled_total", "producer_byte_rate")
    assert throttled.value > 0
    quotas.door.advance(13_000)
    assert second.reads()
    assert quotas.fetched(other, "acme.prod.a") > 5000
    assert not other.reads()


def test_a_topic_has_its_own_rate_under_an_alias_too() -> None:
    quotas = Quotas()
    inventory, connection = quotas.door.manual.broker.inventory, quotas.door.connect("first")
    quotas.set("acme/dev/b", producer_byte_rate=1000)
    quotas.do(inventory.alias, ACCOUNT, TopicPath("acme", "prod", "c"), TopicPath("acme", "dev", "b"))
    assert quotas.produced(connection, "acme.prod.a") == 0
    assert quotas.produced(connection, "acme.dev.b") < 2000
    quotas.door.advance(2000)
    assert quotas.produced(connection, "acme.prod.c") > 5000
    assert not connection.reads()
