"""Consumer groups on three real nodes while their coordinator is killed: members go on, and no commit is lost."""

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Final

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import metrics, until
from tests.untyped import untyped

from duramen.client.http import HttpNode
from duramen.node.processes import NodeProcesses

PARTITIONS: Final = 4
RECORDS: Final = 200
_WAIT_S: Final = 90.0
_ANSWER_S: Final = 10.0
_POLL_S: Final = 0.2
_QUIET: Final[Mapping[str, str | int | bool]] = {"log_level": 0, "reconnect.backoff.max.ms": 500}
_MEMBERS: Final = 2


class Journal:
    """What the members of a group have read, and which commits were acknowledged, in one order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.read: dict[int, set[int]] = {partition: set() for partition in range(PARTITIONS)}
        self.committed: dict[int, int] = {}
        self.again: list[tuple[int, int]] = []  # read although a commit beyond it was acknowledged before
        self.count = 0

    def has_read(self, partition: int, offset: int) -> None:
        """A member was given a record."""
        with self._lock:
            self.read[partition].add(offset)
            self.count += 1
            if offset < self.committed.get(partition, 0):
                self.again.append((partition, offset))

    def has_committed(self, offsets: Mapping[int, int]) -> None:
        """A commit was acknowledged."""
        with self._lock:
            for partition, offset in offsets.items():
                self.committed[partition] = max(offset, self.committed.get(partition, 0))

    @property
    def different(self) -> int:
        """How many records were read."""
        return sum(map(len, self.read.values()))


class Member(threading.Thread):
    """Reads and commits until `leaving`; `has` are the partitions that are its own."""

    def __init__(self, servers: str, stream: str, journal: Journal) -> None:
        super().__init__(name=type(self).__name__)
        self.servers = servers
        self.stream = stream
        self.journal = journal
        self.leaving = threading.Event()
        self.has: frozenset[int] = frozenset()


class Confluent(Member):
    """The classic protocol."""

    protocol: ClassVar[Mapping[str, str | int | bool]] = {"session.timeout.ms": 20_000, "heartbeat.interval.ms": 500}

    def run(self) -> None:
        consumer = Consumer({
            "bootstrap.servers": self.servers, "group.id": self.stream, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, **self.protocol, **_QUIET,
        })  # fmt: skip
        consumer.subscribe([self.stream])
        while not self.leaving.is_set():
            found = [one for one in consumer.consume(20, timeout=_POLL_S) if one.error() is None]
            self.has = frozenset(one.partition for one in consumer.assignment())
            ends: dict[int, int] = {}
            for message in found:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                self.journal.has_read(partition, offset)
                ends[partition] = offset + 1
            if ends:
                self._commit(consumer, ends)
        consumer.close()

    def _commit(self, consumer: Consumer, ends: Mapping[int, int]) -> None:
        places = [TopicPartition(self.stream, partition, offset) for partition, offset in ends.items()]
        try:
            answered = consumer.commit(offsets=places, asynchronous=False)
        except KafkaException:
            return  # not acknowledged: who reads the partition next may be given these again
        assert answered is not None
        self.journal.has_committed({one.partition: one.offset for one in answered if one.error is None})


class ConfluentConsumer(Confluent):
    """The consumer protocol (KIP-848)."""

    protocol: ClassVar[Mapping[str, str | int | bool]] = {"group.protocol": "consumer"}


class KafkaPython(Member):
    """The classic protocol, as kafka-python speaks it."""

    def run(self) -> None:
        errors = untyped("kafka.errors")
        consumer = untyped("kafka").KafkaConsumer(
            self.stream, bootstrap_servers=self.servers.split(","), group_id=self.stream, auto_offset_reset="earliest",
            enable_auto_commit=False, session_timeout_ms=20_000, heartbeat_interval_ms=500, metadata_max_age_ms=2000,
        )  # fmt: skip
        while not self.leaving.is_set():
            ends = self._take(consumer.poll(1000, max_records=20))
            self.has = frozenset(one.partition for one in consumer.assignment())
            if ends:
                try:
                    consumer.commit()
                except errors.KafkaError:
                    continue
                self.journal.has_committed(ends)
        consumer.close()

    def _take(self, batches: Any) -> dict[int, int]:
        for batch in batches.values():
            for one in batch:
                self.journal.has_read(one.partition, one.offset)
        return {place.partition: batch[-1].offset + 1 for place, batch in batches.items()}


class Aiokafka(KafkaPython):
    """The classic protocol, as aiokafka speaks it."""

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        errors = untyped("aiokafka.errors")
        consumer = untyped("aiokafka").AIOKafkaConsumer(
            self.stream, bootstrap_servers=self.servers, group_id=self.stream, auto_offset_reset="earliest",
            enable_auto_commit=False, session_timeout_ms=20_000, heartbeat_interval_ms=500, metadata_max_age_ms=2000,
        )  # fmt: skip
        await consumer.start()
        while not self.leaving.is_set():
            ends = self._take(await consumer.getmany(timeout_ms=200, max_records=20))
            self.has = frozenset(one.partition for one in consumer.assignment())
            if ends:
                try:
                    await consumer.commit()
                except errors.KafkaError:
                    continue
                self.journal.has_committed(ends)
        await consumer.stop()


class Group:
    """A stream and a group of its name on a cluster."""

    def __init__(self, nodes: NodeProcesses, name: str) -> None:
        self.nodes = nodes
        self.name = name
        self.journal = Journal()
        self.produced = 0
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers, **_QUIET})
        for created in admin.create_topics([NewTopic(name, PARTITIONS, 3)]).values():
            created.result(_WAIT_S)

    def produce(self) -> None:
        """Some records more, all acknowledged."""
        failed: list[object] = []
        producer = Producer({"bootstrap.servers": self.nodes.bootstrap_servers, "enable.idempotence": True, **_QUIET})

        def delivered(error: object, _: object) -> None:
            failed.extend([] if error is None else [error])

        for number in range(RECORDS):
            producer.produce(self.name, b"%d" % number, partition=number % PARTITIONS, on_delivery=delivered)
        assert producer.flush(_WAIT_S) == 0
        assert not failed
        self.produced += RECORDS

    def wait_read(self) -> None:
        """Wait until everything that was produced was read."""
        until(lambda: self.journal.different == self.produced, _WAIT_S)

    def coordinator(self) -> int:
        """The node that coordinates the group."""

        def found() -> int:
            admin = AdminClient({"bootstrap.servers": self.nodes.bootstrap_servers, **_QUIET})
            try:
                described = admin.describe_consumer_groups([self.name])[self.name].result(_ANSWER_S)
            except (KafkaException, TimeoutError):
                return 0
            return int(described.coordinator.id)

        return until(found, _WAIT_S)

    def stored(self) -> dict[int, int]:
        """What the group has committed, as its coordinator says."""
        consumer = Consumer({"bootstrap.servers": self.nodes.bootstrap_servers, "group.id": self.name, **_QUIET})
        found = consumer.committed([TopicPartition(self.name, index) for index in range(PARTITIONS)], timeout=_WAIT_S)
        consumer.close()
        return {one.partition: one.offset for one in found}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcesses]:
    """A cluster that the tests share; each leaves it whole."""
    settings = {"group.initial.rebalance.delay.ms": 500}
    with NodeProcesses(tmp_path_factory.mktemp("groups"), 3, settings) as cluster:
        yield cluster
        for number, log in cluster.logs().items():
            assert "Traceback" not in log, number


@pytest.fixture
def working(nodes: NodeProcesses) -> Iterator[Callable[[str, type[Member]], tuple[Group, list[Member]]]]:
    """Begins a group of two members that have all partitions between them."""
    begun: list[Member] = []

    def begin(name: str, kind: type[Member]) -> tuple[Group, list[Member]]:
        group = Group(nodes, name)
        members = [kind(nodes.bootstrap_servers, name, group.journal) for _ in range(_MEMBERS)]
        begun.extend(members)
        for member in members:
            member.start()
        until(lambda: all(member.has for member in members), _WAIT_S)
        until(lambda: members[0].has | members[1].has == set(range(PARTITIONS)), _WAIT_S)
        return group, members

    yield begin
    nodes.start([number for number in nodes.nodes if number not in nodes.running])
    for member in begun:
        member.leaving.set()
    for member in begun:
        member.join(_WAIT_S)
    assert not [member for member in begun if member.is_alive()]
    begun.clear()
    gc.collect()  # what kafka-python has left open is to be found here, where that is known


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize(
    "kind",
    [Confluent, *(pytest.param(one, marks=pytest.mark.long) for one in (ConfluentConsumer, KafkaPython, Aiokafka))],
)
def test_a_group_goes_on_when_its_coordinator_is_killed(
    nodes: NodeProcesses, working: Callable[[str, type[Member]], tuple[Group, list[Member]]], kind: type[Member]
) -> None:
    group, members = working(f"group-{kind.__name__.lower()}", kind)
    group.produce()
    group.wait_read()
    killed = group.coordinator()
    nodes.kill(killed)
    group.produce()
    group.wait_read()
    assert group.coordinator() != killed
    nodes.start([killed])
    group.produce()
    group.wait_read()
    journal = group.journal
    until(lambda: sum(journal.committed.values()) == group.produced, _WAIT_S)
    assert group.stored() == journal.committed
    assert journal.again == []
    assert all(member.is_alive() for member in members)


def test_every_node_lists_the_groups_of_all_over_http(nodes: NodeProcesses) -> None:
    names = [f"listed-{number}" for number in range(12)]
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers, **_QUIET})
    admin.create_topics([NewTopic("listed", 1, 3)])["listed"].result(_WAIT_S)
    for name in names:
        consumer = Consumer({"bootstrap.servers": nodes.bootstrap_servers, "group.id": name, **_QUIET})
        until(partial(_commits, consumer, TopicPartition("listed", 0, 0)), _WAIT_S)
        consumer.close()
    for node in nodes.nodes.values():
        found: list[str] = []
        after: str | None = ""
        while after is not None:
            page = HttpNode(node.http).get(f"/v1/groups?limit=5&after={after}")
            assert page["silent_nodes"] == []
            found += [group["id"] for group in page["groups"]]
            after = page["next"]
        assert found == sorted(found)
        assert [one for one in found if one in names] == sorted(names)


@pytest.mark.long
def test_each_partition_s_lag_is_told_by_one_node_wherever_it_is_led(nodes: NodeProcesses) -> None:
    name, partitions = "lagging", 6
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers, **_QUIET})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(_WAIT_S)
    producer = Producer({"bootstrap.servers": nodes.bootstrap_servers, **_QUIET})
    for number in range(partitions * 10):
        producer.produce(name, b"x", partition=number % partitions)
    assert producer.flush(_WAIT_S) == 0
    groups = [f"{name}-{number}" for number in range(4)]
    for group in groups:
        consumer = Consumer({"bootstrap.servers": nodes.bootstrap_servers, "group.id": group, **_QUIET})
        for index in range(partitions):
            until(partial(_commits, consumer, TopicPartition(name, index, index)), _WAIT_S)
        consumer.close()
    expected = {(group, str(index)): 10.0 - index for group in groups for index in range(partitions)}
    records = [metrics(node, "duramen_group_lag_records", stream=name) for node in nodes.nodes.values()]
    told = [((one["group"], one["partition"]), value) for found in records for one, value in found]
    assert sorted(told) == sorted(expected.items())
    seconds = [metrics(node, "duramen_group_lag_seconds", stream=name) for node in nodes.nodes.values()]
    assert sorted((one["group"], one["partition"]) for found in seconds for one, _ in found) == sorted(expected)
    assert all(value > 0 for found in seconds for _, value in found)


def _commits(consumer: Consumer, place: TopicPartition) -> bool:
    try:
        consumer.commit(offsets=[place], asynchronous=False)
    except KafkaException:
        return False
    return True
