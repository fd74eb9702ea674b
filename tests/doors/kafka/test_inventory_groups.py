"""Groups that read topics of the inventory while these are renamed, with Kafka clients."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients import CONFLUENT, Record, metric, until
from tests.doors.kafka.asking import Asking

import duramen
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.versions import ApiKey
from duramen.groups.records import OffsetKey, decode_key
from duramen.node.process import NodeProcess

_SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": 0, "group.consumer.heartbeat.interval.ms": 2000,
    "inventory.metadata.namespace": "acme/prod", "offsets.retention.check.interval.ms": 1000,
}  # fmt: skip
_GONE: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


@pytest.fixture(scope="module")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node whose Metadata lists the topics of acme/prod."""
    with NodeProcess(tmp_path_factory.mktemp("acme") / "data", _SETTINGS) as node:
        with duramen.connect(node.http) as client:
            client.inventory.create_tenants(["acme"])
            client.inventory.create_namespaces("acme", ["prod", "dev"])
        yield node


class Reader:
    """A member of a group that commits after each poll what it has read."""

    def __init__(self, node: NodeProcess, group: str, topics: list[str], protocol: str) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": node.kafka, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "topic.metadata.refresh.interval.ms": 300, "group.protocol": protocol,
        }  # fmt: skip
        self._consumer = Consumer(settings)
        self._consumer.subscribe(topics)
        self._topics: list[str] | None = None
        self._over = threading.Event()
        self._threads = ThreadPoolExecutor(1)
        self.values: list[bytes] = []
        self._reading = self._threads.submit(self._read)

    def subscribe(self, topics: list[str]) -> None:
        """Read these topics from now on."""
        self._topics = topics

    def _read(self) -> None:
        while not self._over.is_set():
            topics, self._topics = self._topics, None
            if topics is not None:
                self._consumer.subscribe(topics)
            messages = self._consumer.consume(10, timeout=0.1)
            errors = [error for one in messages if (error := one.error()) is not None]
            assert all(error.code() in _GONE for error in errors), errors
            found = [one.value() or b"" for one in messages if one.error() is None]
            self.values += found
            if found:
                self._commit()

    def _commit(self) -> None:
        with suppress(KafkaException):  # it was taken away meanwhile: what another reads again is seen in the end
            self._consumer.commit(asynchronous=False)

    def has(self, count: int) -> bool:
        """Whether so many records were read. Raises what went wrong."""
        if self._reading.done():
            self._reading.result()
        return len(self.values) >= count

    def leave(self) -> None:
        """End."""
        self._over.set()
        self._reading.result(60)
        self._threads.shutdown()
        self._consumer.close()


@pytest.mark.variants(2)
@pytest.mark.parametrize(
    ("how", "protocol"),
    [
        ("pattern", "consumer"), ("pattern", "classic"), ("alias", "consumer"), ("alias", "classic"),
        ("subscription", "consumer"), ("subscription", "classic"),
    ],
)  # fmt: skip
def test_a_group_goes_on_after_a_rename(acme: NodeProcess, how: str, protocol: str) -> None:
    goes_on(acme, how, protocol)


def goes_on(acme: NodeProcess, how: str, protocol: str) -> None:
    """A group that reads a topic goes on when the topic is renamed, at its new name, and reads no record twice."""
    name = f"{how}-{protocol}"
    before, after = f"acme.prod.{name}.a", f"acme.prod.{name}.b"
    numbers = [b"%d" % number for number in range(300)]
    with duramen.connect(acme.http) as client:
        client.inventory.create_topics("acme/prod", [f"{name}.a"])
        CONFLUENT.produce(acme.kafka, before, [Record(value) for value in numbers[:200]])
        reader = Reader(acme, name, [rf"^acme\.prod\.{name}\..*" if how == "pattern" else before], protocol)
        until(lambda: reader.has(50))
        to = f"acme/prod/{name}.b"
        client.inventory.move_topic(f"acme/prod/{name}.a", to, keep_alias=how == "alias")
        CONFLUENT.produce(acme.kafka, after, [Record(value) for value in numbers[200:]])
        if how == "subscription":
            reader.subscribe([after])
        until(lambda: reader.has(len(numbers)))
        reader.leave()
    assert reader.values == numbers


@pytest.mark.variants(2)
@pytest.mark.parametrize(
    ("change", "protocol"),
    [("tenant", "consumer"), ("namespace", "classic"), ("tenant", "classic"), ("namespace", "consumer"),
     ("topic", "consumer"), ("topic", "classic")],
)  # fmt: skip
def test_a_running_group_goes_on_when_its_topic_comes_under_another_tenant_or_namespace(
    acme: NodeProcess, change: str, protocol: str
) -> None:
    tenant = f"{change}-{protocol}"
    numbers = [b"%d" % number for number in range(300)]
    with duramen.connect(acme.http) as client:
        inventory = client.inventory
        inventory.create_tenants([tenant, f"{tenant}-other"])
        inventory.create_namespaces(tenant, ["prod", "dev"])
        inventory.create_topics(f"{tenant}/prod", ["a"])
        CONFLUENT.produce(acme.kafka, f"{tenant}.prod.a", [Record(value) for value in numbers[:200]])
        reader = Reader(acme, tenant, [f"{tenant}.prod.a"], protocol)
        until(lambda: reader.has(50))
        match change:
            case "tenant":
                after = f"{tenant}-new.prod.a"
                inventory.update_tenant(tenant, name=f"{tenant}-new")
            case "namespace":
                after = f"{tenant}-other.prod2.a"
                inventory.update_namespace(f"{tenant}/prod", to=f"{tenant}-other/prod2")
            case _:
                after = f"{tenant}.dev.b"
                inventory.move_topic(f"{tenant}/prod/a", f"{tenant}/dev/b")
        CONFLUENT.produce(acme.kafka, after, [Record(value) for value in numbers[200:]])
        reader.subscribe([after])
        until(lambda: reader.has(len(numbers)))
        reader.leave()
    assert reader.values == numbers


_GROUP: Final = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}


class Offsets:
    """What a group has committed, asked for and changed by requests."""

    def __init__(self, asking: Asking, group: str) -> None:
        self._asking = asking
        self._group = group

    def commit(self, topic: str, offset: int) -> int:
        """The error of a commit."""
        partition = {
            "partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": "",
        }  # fmt: skip
        request = {**_GROUP, "group_id": self._group, "topics": [{"name": topic, "partitions": [partition]}]}
        return _error(self._asking.ask(ApiKey.OFFSET_COMMIT, 8, request))

    def commit_in_transaction(self, topic: str, offset: int) -> int:
        """The error of a commit by a producer that names no member; it is not ended."""
        begun = {"transactional_id": "t", "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}
        made = self._asking.ask(ApiKey.INIT_PRODUCER_ID, 4, begun)
        who = {"transactional_id": "t", "producer_id": made["producer_id"], "producer_epoch": made["producer_epoch"]}
        self._asking.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, {**who, "group_id": self._group})
        partition = {
            "partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": "",
        }  # fmt: skip
        request = {
            **who, "group_id": self._group, "generation_id": -1, "member_id": "", "group_instance_id": None,
            "topics": [{"name": topic, "partitions": [partition]}],
        }  # fmt: skip
        error = _error(self._asking.ask(ApiKey.TXN_OFFSET_COMMIT, 3, request))
        self._asking.ask(ApiKey.END_TXN, 3, {**who, "committed": True})
        return error

    def fetch(self, *topics: str) -> dict[str, int]:
        """The offsets by topic; without topics all."""
        wanted = [{"name": topic, "partition_indexes": [0]} for topic in topics] or None
        request = {"group_id": self._group, "topics": wanted, "require_stable": False}
        found = self._asking.ask(ApiKey.OFFSET_FETCH, 7, request)["topics"]
        return {topic["name"]: topic["partitions"][0]["committed_offset"] for topic in found}

    def delete(self, topic: str) -> int:
        """The error of a deletion."""
        request = {"group_id": self._group, "topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]}
        return _error(self._asking.ask(ApiKey.OFFSET_DELETE, 0, request))


def _error(answer: dict[str, Any]) -> int:
    error: int = answer["topics"][0]["partitions"][0]["error_code"]
    return error


def _stored(node: NodeProcess, group: str) -> list[str]:
    """The topic of each record in `__consumer_offsets` that is an offset of the group, tombstones with a minus."""
    settings = {"bootstrap.servers": node.kafka, "group.id": "reader-of-offsets", "enable.partition.eof": True}
    found, consumer = list[str](), Consumer(settings)
    left = set(consumer.list_topics("__consumer_offsets").topics["__consumer_offsets"].partitions)
    consumer.assign([TopicPartition("__consumer_offsets", partition, 0) for partition in left])
    while left:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is not None:
            left.discard(message.partition())
            continue
        key = decode_key(message.key() or b"")
        if isinstance(key, OffsetKey) and key.group == group:
            found.append(("-" if message.value() is None else "") + key.topic)
    consumer.close()
    return found


def test_offsets_follow_the_topic_whatever_it_is_called(acme: NodeProcess) -> None:
    old, new, alias = "acme.prod.offsets.a", "acme.dev.offsets.b", "acme.dev.offsets.c"
    with Asking(acme) as asking, duramen.connect(acme.http) as client:
        inventory, offsets = client.inventory, Offsets(asking, "offsets")
        inventory.create_topics("acme/prod", ["offsets.a"])
        inventory.alias("acme/dev/offsets.c", "acme/prod/offsets.a")
        places = CONFLUENT.produce(acme.kafka, old, [Record(b"%d" % number) for number in range(10)])
        stored = "~" + UUID(inventory.topic("acme/prod/offsets.a").id).hex
        assert offsets.commit(old, places[4].offset) == 0
        assert offsets.fetch(alias) == {alias: places[4].offset}
        inventory.move_topic("acme/prod/offsets.a", "acme/dev/offsets.b")
        assert offsets.fetch() == {new: places[4].offset}
        assert offsets.fetch(old, new, alias) == {old: -1, new: places[4].offset, alias: places[4].offset}
        # A member that has read under the old name says how far it came.
        assert offsets.commit(old, places[5].offset) == 0
        assert offsets.commit("acme.prod.offsets.other", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert offsets.commit(stored, 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert offsets.fetch(stored) == {stored: -1}
        assert offsets.commit_in_transaction(alias, places[6].offset) == 0
        assert until(lambda: offsets.fetch(new) == {new: places[6].offset})
        (shown,) = client.groups.describe("offsets").offsets
        assert (shown.stream, shown.committed_offset, shown.lag_records) == (new, places[6].offset, 4)
        until(lambda: metric(acme, "duramen_group_lag_records", group="offsets", stream=new, partition="0") == 4)
        assert offsets.delete(alias) == 0
        assert offsets.fetch() == {}
        assert offsets.commit(new, places[7].offset) == 0
        inventory.delete_topic("acme/dev/offsets.c")
        inventory.delete_topic("acme/dev/offsets.b")
        assert offsets.fetch() == {}
        until(lambda: _stored(acme, "offsets")[-1] == f"-{stored}")
    assert {topic.removeprefix("-") for topic in _stored(acme, "offsets")} == {stored}


def test_offsets_of_light_topics_are_reset_by_names(acme: NodeProcess) -> None:
    topic = "acme.prod.reset.b"
    admin = AdminClient({"bootstrap.servers": acme.kafka})
    space = NewTopic("resetting", 1, config={"kind": "queues", "queue.topic.prefix": "r."})
    admin.create_topics([space])["resetting"].result(60)
    with Asking(acme) as asking, duramen.connect(acme.http) as client:
        offsets = Offsets(asking, "reset")

        def reset(to: str, **more: Any) -> list[tuple[str, int | None, int]]:
            return [(one.stream, one.before, one.after) for one in client.groups.reset("reset", to, **more)]

        client.inventory.create_topics("acme/prod", ["reset.a", "reset.b-other"])
        # Records of another topic may lie between: their offsets are of the shard.
        records = [Record(b"%d" % number, timestamp_ms=1000 + number) for number in range(10)]
        places = [one.offset for one in CONFLUENT.produce(acme.kafka, "acme.prod.reset.a", records)]
        queued = [one.offset for one in CONFLUENT.produce(acme.kafka, "r.mail", records)]
        assert offsets.commit("acme.prod.reset.a", places[4]) == 0
        client.inventory.move_topic("acme/prod/reset.a", "acme/prod/reset.b")
        assert reset("start") == [(topic, places[4], places[0])]
        assert offsets.fetch() == {topic: places[0]}
        assert reset("-3") == [(topic, places[0], places[7])]
        assert reset("@1006", streams=[topic, "r.mail"]) == [
            (topic, places[7], places[6]), ("r.mail", None, queued[6]),
        ]  # fmt: skip
        assert reset("end", streams=[topic], partition=0) == [(topic, places[6], places[9] + 1)]
        assert offsets.fetch() == {topic: places[9] + 1, "r.mail": queued[6]}
        for streams, partition in (["acme.prod.nothing"], None), ([topic], 1):
            with pytest.raises(duramen.errors.StreamNotFound):
                reset("start", streams=streams, partition=partition)
        with pytest.raises(duramen.errors.RequestInvalid, match="more than"):
            reset("-10001", streams=[topic])


def test_offsets_go_with_the_namespace_of_their_topic(acme: NodeProcess) -> None:
    with Asking(acme) as asking, duramen.connect(acme.http) as client:
        inventory, offsets = client.inventory, Offsets(asking, "short-lived")
        inventory.create_namespaces("acme", ["short-lived"])
        inventory.create_topics("acme/short-lived", ["a"])
        assert offsets.commit("acme.short-lived.a", 0) == 0
        inventory.delete_namespace("acme/short-lived")
        until(lambda: _stored(acme, "short-lived")[-1].startswith("-~"))


def test_offsets_of_light_topics_survive_a_crash(acme: NodeProcess) -> None:
    space = NewTopic("space", 1, config={"kind": "queues", "queue.topic.prefix": "q."})
    admin = AdminClient({"bootstrap.servers": acme.kafka})
    admin.create_topics([space])["space"].result(60)
    with duramen.connect(acme.http) as client:
        client.inventory.create_topics("acme/prod", ["crash"])
    topics = ["acme.prod.crash", "q.crash"]
    with Asking(acme) as asking:
        assert [Offsets(asking, "crash").commit(topic, 0) for topic in topics] == [0, 0]
    acme.kill()
    acme.start()
    with Asking(acme) as asking:
        assert until(lambda: Offsets(asking, "crash").fetch()) == dict.fromkeys(topics, 0)
