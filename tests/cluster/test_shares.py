"""Share groups on three real nodes that are killed: what was acknowledged does not come again, everything else does."""

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from confluent_kafka import AcknowledgeType, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import until
from tests.cluster.proxy import Network
from tests.doors.kafka.sharing import ACCEPT, RELEASE, Given, RawShareConsumer
from tests.raw import connect, stream_id
from tests.untyped import untyped

from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey
from duramen.coordinators.group.offsets import OFFSETS_STREAM
from duramen.coordinators.share.state import SHARE_STATE_STREAM
from duramen.groups.records import partition_for
from duramen.groups.share_records import ShareKey, state_partition_for
from duramen.node.processes import NodeProcesses

_WAIT_S: Final = 90.0
_POLL_S: Final = 0.2
_STATES: Final = 3
_SETTINGS: Final = {"offsets.topic.num.partitions": _STATES, "share.coordinator.state.topic.num.partitions": _STATES}
_RECORDS: Final = 300
_QUIET: Final[Mapping[str, str | int | bool]] = {
    "log_level": 0, "reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 1000,
}  # fmt: skip
_AGAIN: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Journal:
    """What the workers of a group were given and what they were told of their acknowledgements, in one order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.accepted: set[int] = set()
        self.unsure: set[int] = set()  # accepted, and nobody could say whether that counts: it comes again, or not
        self.released: dict[int, int] = {}  # how often it had been delivered when that was acknowledged
        self.wrong: list[str] = []

    def given(self, offset: int, deliveries: int) -> None:
        """A worker was given a record."""
        with self._lock:
            if offset in self.accepted:
                self.wrong.append(f"{offset} was acknowledged, and comes in delivery {deliveries}")
            if deliveries <= self.released.get(offset, 0):
                self.wrong.append(f"{offset} comes in delivery {deliveries}, after {self.released[offset]}")

    def said(self, accepted: set[int], released: Mapping[int, int]) -> None:
        """Acknowledgements were answered."""
        with self._lock:
            self.accepted |= accepted
            self.released.update(released)

    def doubted(self, accepted: set[int]) -> None:
        """Whether acknowledgements count was not answered."""
        with self._lock:
            self.unsure |= accepted

    @property
    def settled(self) -> int:
        """Of how many records no more need come."""
        with self._lock:
            return len(self.accepted | self.unsure)


class Worker(threading.Thread):
    """Accepts what it is given; of the records that come for the first time it gives every seventh back."""

    def __init__(self, servers: str, stream: str, journal: Journal) -> None:
        super().__init__(name="worker", daemon=True)
        self._journal = journal
        self._consumer = ShareConsumer(
            {"bootstrap.servers": servers, "group.id": stream, "share.acknowledgement.mode": "explicit", **_QUIET}
        )
        self._consumer.subscribe([stream])
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._work()
            except KafkaException:
                continue  # what was not acknowledged comes again
        self._consumer.close()

    def _work(self) -> None:
        accepted: set[int] = set()
        released: dict[int, int] = {}
        for record in self._consumer.poll(timeout=_POLL_S):
            offset, deliveries = record.offset(), record.delivery_count()
            if record.error() is not None or offset is None or deliveries is None:
                continue
            self._journal.given(offset, deliveries)
            if deliveries == 1 and offset % 7 == 0:
                released[offset] = deliveries
                self._consumer.acknowledge(record, AcknowledgeType.RELEASE)
            else:
                accepted.add(offset)
                self._consumer.acknowledge(record, AcknowledgeType.ACCEPT)
        if accepted or released:
            self._journal.doubted(accepted)
            answered = self._consumer.commit_sync(timeout=_WAIT_S)
            if answered and set(answered.values()) == {None}:
                self._journal.said(accepted, released)


class Group:
    """A stream of one partition and a share group of its name."""

    def __init__(self, nodes: NodeProcesses, name: str) -> None:
        self.nodes = nodes
        self.name = name
        self.produced = 0
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers, **_QUIET})
        admin.create_topics([NewTopic(name, 1, 3)])[name].result(_WAIT_S)
        made = untyped("confluent_kafka.admin")
        entry = made.ConfigEntry(
            "share.auto.offset.reset", "earliest", incremental_operation=made.AlterConfigOpType.SET
        )
        resource = made.ConfigResource(made.ResourceType.GROUP, name, incremental_configs=[entry])
        client = made.AdminClient({"bootstrap.servers": nodes.bootstrap_servers, **_QUIET})
        client.incremental_alter_configs([resource])[resource].result(_WAIT_S)
        connection = connect(self.any_node())
        self.key = ShareKey(name, UUID(bytes=stream_id(connection, name).bytes), 0)
        connection.close()

    def any_node(self) -> Any:
        return self.nodes.nodes[self.nodes.running[0]]

    def produce(self, count: int) -> None:
        """So many records more, all acknowledged."""
        failed: list[object] = []
        producer = Producer({"bootstrap.servers": self.nodes.bootstrap_servers, "enable.idempotence": True, **_QUIET})
        for number in range(count):
            producer.produce(
                self.name, b"%d" % number, on_delivery=lambda error, _: failed.extend([error] if error else [])
            )
        assert producer.flush(_WAIT_S) == 0
        assert not failed
        self.produced += count

    def leader(self, stream: str, partition: int) -> int:
        """Who leads a partition."""

        def found() -> int:
            connection = connect(self.any_node())
            answer = connection.request(ApiKey.METADATA, {"topics": [{"name": stream}]})
            connection.close()
            by_index = {one["partition_index"]: one["leader_id"] for one in answer["topics"][0]["partitions"]}
            leader: int = by_index.get(partition, -1)
            return leader if leader in self.nodes.running else 0

        return until(found, _WAIT_S)

    def owner(self, what: str) -> int:
        """The node that leads the partition, keeps its state, or coordinates the group."""
        if what == "leader":
            return self.leader(self.name, 0)
        if what == "keeper":
            return self.leader(SHARE_STATE_STREAM, state_partition_for(self.key, _STATES))
        return self.leader(OFFSETS_STREAM, partition_for(self.name, _STATES))

    def coordinated(self) -> bool:
        """Whether there is a coordinator; who asks for one makes the stream of its records."""
        connection = connect(self.any_node())
        (found,) = connection.request(ApiKey.FIND_COORDINATOR, {"coordinator_keys": [self.name]})["coordinators"]
        connection.close()
        return bool(found["error_code"] == 0)

    def ask(self, api: ApiKey, message: Message) -> Message:
        """What the group's coordinator answers, once there is one."""

        def answered() -> Message:
            connection = connect(self.nodes.nodes[self.owner("coordinator")])
            found = connection.request(api, message)
            connection.close()
            codes = {found.get("error_code", 0), *(one["error_code"] for one in found.get("groups", ()))}
            codes |= {one.get("error_code", 0) for one in found.get("results", ())}
            return {} if codes & set(_AGAIN) else found

        return until(answered, _WAIT_S)

    def offset(self) -> tuple[int, int]:
        """Where the group begins, and how far it is behind."""
        group = {"group_id": self.name, "topics": [{"topic_name": self.name, "partitions": [0]}]}
        found = self.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, {"groups": [group]})["groups"][0]
        assert found["error_code"] == 0, found
        (partition,) = found["topics"][0]["partitions"]
        assert partition["error_code"] == 0, partition
        return partition["start_offset"], partition["lag"]


class RawMember(RawShareConsumer):
    """A member that speaks to the coordinator and to the leader, wherever these are."""

    def __init__(self, group: Group, member_id: str) -> None:
        super().__init__(group.nodes.nodes[group.owner("leader")], group.name, group.name, member_id)
        self._group = group

    def beat(self, *, epoch: int | None = None, topics: Any = None) -> Message:
        here = self.connection
        self.connection = connect(self._group.nodes.nodes[self._group.owner("coordinator")])
        try:
            return super().beat(epoch=epoch, topics=topics)
        finally:
            self.connection.close()
            self.connection = here


def joined(group: Group, member_id: str) -> RawMember:
    """A member, once the coordinator takes it."""
    member = RawMember(group, member_id)
    until(lambda: member.beat(epoch=0, topics=[group.name])["error_code"] == 0, _WAIT_S)
    return member


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcesses]:
    """A cluster that the tests share; each leaves it whole."""
    with NodeProcesses(tmp_path_factory.mktemp("shares"), 3, _SETTINGS) as cluster:
        yield cluster
        for number, log in cluster.logs().items():
            assert "Traceback" not in log, number


@pytest.fixture
def working(nodes: NodeProcesses) -> Iterator[Callable[[str], tuple[Group, Journal]]]:
    """Begins a group of two workers."""
    begun: list[Worker] = []

    def begin(name: str) -> tuple[Group, Journal]:
        group, journal = Group(nodes, name), Journal()
        begun.extend(Worker(nodes.bootstrap_servers, name, journal) for _ in range(2))
        for worker in begun:
            worker.start()
        return group, journal

    yield begin
    nodes.start([number for number in nodes.nodes if number not in nodes.running])
    for worker in begun:
        worker.stopping.set()
    for worker in begun:
        worker.join(_WAIT_S)
    assert not [worker for worker in begun if worker.is_alive()]


@pytest.mark.parametrize(
    "what", ["leader", *(pytest.param(one, marks=pytest.mark.long) for one in ("keeper", "coordinator"))]
)
def test_a_group_works_on_when_a_node_is_killed(
    nodes: NodeProcesses, working: Callable[[str], tuple[Group, Journal]], what: str
) -> None:
    group, journal = working(f"killed-{what}")
    group.produce(_RECORDS)
    until(lambda: len(journal.accepted) >= _RECORDS // 3 or journal.wrong, _WAIT_S)
    killed = group.owner(what)
    nodes.kill(killed)
    group.produce(_RECORDS)
    until(lambda: journal.settled == group.produced or journal.wrong, _WAIT_S)
    nodes.start([killed])
    group.produce(_RECORDS)
    until(lambda: journal.settled == group.produced or journal.wrong, _WAIT_S)
    assert journal.wrong == []
    until(lambda: group.offset() == (group.produced, 0), _WAIT_S)


@pytest.mark.long
@pytest.mark.parametrize("what", ["leader", "keeper"])
def test_counts_and_acknowledgements_hold_over_a_kill(nodes: NodeProcesses, what: str) -> None:
    group = Group(nodes, f"counted-{what}")
    group.produce(10)
    one = joined(group, "one")
    assert len(until(lambda: one.fetch(wait_ms=500), _WAIT_S)) == 10
    assert one.say(Given(0, 3, [ACCEPT]), Given(4, 5, [RELEASE])) == {0: 0}
    assert one.say(Given(7, 7, [ACCEPT])) == {0: 0}
    killed, leader = group.owner(what), group.owner("leader")
    nodes.kill(killed)
    if killed != leader and what == "keeper":
        # It waits until somebody else keeps the state.
        assert one.say(Given(8, 8, [ACCEPT])) == {0: 0}
    one.connection.close()
    two = joined(group, "two")
    got: dict[int, int] = {}

    def everything() -> bool:
        got.update({found.offset: found.deliveries for found in two.fetch(wait_ms=500)})
        return {4, 5, 6, 9} <= set(got)

    until(everything, _WAIT_S)
    assert set(got) <= {4, 5, 6, 8, 9}
    assert (got[4], got[5]) == (2, 2)
    assert got[6] in (1, 2)
    two.connection.close()
    nodes.start([killed])


@pytest.mark.long
def test_an_operator_describes_moves_and_deletes_a_group(nodes: NodeProcesses) -> None:
    group = Group(nodes, "operated")
    group.produce(10)
    one = joined(group, "one")
    until(lambda: one.fetch(wait_ms=500), _WAIT_S)
    assert one.say(Given(0, 9, [ACCEPT])) == {0: 0}
    assert group.offset() == (10, 0)
    start = {"topic_name": group.name, "partitions": [{"partition_index": 0, "start_offset": 4}]}
    alter = {"group_id": group.name, "topics": [start]}
    assert group.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alter)["error_code"] == ErrorCode.NON_EMPTY_GROUP
    one.leave()
    assert group.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alter)["error_code"] == 0
    assert group.offset() == (4, 6)
    two = joined(group, "two")
    found = until(lambda: two.fetch(wait_ms=500), _WAIT_S)
    assert [(one.offset, one.deliveries) for one in found] == [(at, 1) for at in range(4, 10)]
    two.leave()
    delete = {"group_id": group.name, "topics": [{"topic_name": group.name}]}
    assert group.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, delete)["responses"][0]["error_code"] == 0
    again = {"group_id": group.name, "topics": [start]}
    assert group.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, again)["error_code"] == 0
    gone = group.ask(ApiKey.DELETE_GROUPS, {"groups_names": [group.name]})
    assert [one["error_code"] for one in gone["results"]] == [0]
    described = group.ask(ApiKey.SHARE_GROUP_DESCRIBE, {"group_ids": [group.name]})["groups"][0]
    assert described["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.long
def test_a_leader_that_is_cut_off_hands_out_nothing_once_its_session_is_over(tmp_path: Path) -> None:
    with Network() as network, NodeProcesses(tmp_path, 3, _SETTINGS, reached=network.reach) as nodes:
        group = Group(nodes, "cut")
        until(group.coordinated, _WAIT_S)
        group.produce(10)
        one = joined(group, "one")
        assert len(until(lambda: one.fetch(wait_ms=500), _WAIT_S)) == 10
        leader = group.owner("leader")
        network.part([leader], [number for number in nodes.nodes if number != leader])

        def refused() -> bool:
            one.fetch(wait_ms=100)
            errors = [place["error_code"] for topic in one.last["responses"] for place in topic["partitions"]]
            return errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

        until(refused, _WAIT_S)
        network.heal()
        one.connection.close()

        def worked_off() -> bool:
            two = joined(group, "two")
            found = two.fetch(wait_ms=500)
            done = len(found) == 10 and two.say(Given(0, 9, [ACCEPT])) == {0: 0}
            two.connection.close()
            return done

        until(worked_off, _WAIT_S)
        assert group.offset() == (10, 0)
        assert not [log for log in nodes.logs().values() if "Traceback" in log]
