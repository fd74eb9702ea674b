"""Groups of the consumer protocol (KIP-848) as librdkafka's members live in them, alone and beside classic members."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import CONFLUENT, Record, until
from tests.doors.kafka.members import MEMBERS, Member
from tests.untyped import untyped

from duramen.client.connection import BrokerConnection
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

_S = 60
_PARTITIONS = 4
# librdkafka gives a heartbeat up after this interval: a member that misses the answer with a new epoch is fenced, and
# one that misses its assignment is not told of it again.
_QUICK = {"group.initial.rebalance.delay.ms": 0, "group.consumer.heartbeat.interval.ms": 2000}
_TRY_AGAIN = (
    "REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "STALE_MEMBER_EPOCH", "_NO_OFFSET",
    "_ASSIGNMENT_LOST",
)  # fmt: skip


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node whose members heartbeat every two seconds."""
    with NodeProcess(tmp_path_factory.mktemp("quick") / "data", _QUICK) as process:
        yield process


def make(node: NodeProcess, name: str, partitions: int = _PARTITIONS) -> AdminClient:
    """A stream; the client that made it."""
    admin = AdminClient({"bootstrap.servers": node.kafka})
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result(_S)
    return admin


class Reader:
    """A member that reads in a thread of its own and commits after every poll.

    `committed` is shared by a group's members: by partition, what was committed. Nobody reads what lies before that.
    """

    def __init__(
        self, node: NodeProcess, stream: str, protocol: str = "consumer", committed: dict[int, int] | None = None,
        **options: object,
    ) -> None:  # fmt: skip
        settings: dict[str, Any] = {
            "bootstrap.servers": node.kafka, "group.id": stream.lstrip("^"), "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "topic.metadata.refresh.interval.ms": 500,
        }  # fmt: skip
        if protocol == "consumer":
            settings["group.protocol"] = "consumer"
        else:
            settings |= {"heartbeat.interval.ms": 100, "partition.assignment.strategy": protocol}
        self.seen: list[tuple[int, int]] = []
        self.values: set[bytes] = set()
        self.assigned: frozenset[tuple[str, int]] = frozenset()
        self.rebalances = 0
        self.lost = 0  # how often it was told that others may have its partitions already
        self.errors: list[str] = []
        self._committed = {} if committed is None else committed
        self._leaving = threading.Event()
        self._consumer = Consumer(settings | {name.replace("_", "."): value for name, value in options.items()})
        self._consumer.subscribe([stream], on_assign=self._assigned, on_lost=self._lost)
        self._thread = threading.Thread(target=self._run, daemon=True)  # a test that fails does not wait for it
        self._thread.start()

    def _assigned(self, *_: object) -> None:
        self.rebalances += 1

    def _lost(self, *_: object) -> None:
        self.lost += 1

    def _run(self) -> None:
        try:
            while not self._leaving.is_set():
                messages = self._consumer.consume(100, timeout=0.05)
                self.assigned = frozenset((one.topic, one.partition) for one in self._consumer.assignment())
                for message in messages:
                    error = message.error()
                    if error is not None:
                        self.errors.append(error.name())
                        continue
                    place = (message.partition() or 0, message.offset() or 0)
                    assert place[1] >= self._committed.get(place[0], 0), f"{place} is read although it was committed"
                    self.seen.append(place)
                    self.values.add(message.value() or b"")
                if messages:
                    self._commit()
        except AssertionError as error:
            self.errors.append(str(error))
        finally:
            self._consumer.close()

    def _commit(self) -> None:
        try:
            for one in self._consumer.commit(asynchronous=False) or ():
                if one.error is None:
                    self._committed[one.partition] = max(one.offset, self._committed.get(one.partition, 0))
        except KafkaException as error:
            # Another has these partitions now, or this one a new epoch: they are read again from what was committed.
            if error.args[0].name() not in _TRY_AGAIN:
                self.errors.append(str(error))

    def leave(self, *, in_peace: bool = True) -> None:
        """Say good-bye; not `in_peace` where its stream or its node was gone meanwhile: then errors are no surprise."""
        self._leaving.set()
        self._thread.join(_S)
        self.assigned = frozenset()
        assert not in_peace or self.errors == []


def shared(*members: Reader | Member, partitions: int = _PARTITIONS) -> bool:
    """Whether every member reads, and every partition is read by one of them."""
    shares = [{one if isinstance(one, int) else one[1] for one in member.assigned} for member in members]
    return all(shares) and sorted(index for share in shares for index in share) == list(range(partitions))


def described(admin: AdminClient, group: str) -> Any:
    """What an administrator is told of a group."""
    (future,) = admin.describe_consumer_groups([group], request_timeout=_S).values()
    return future.result(_S)


def epoch_of(node: NodeProcess, group: str) -> int:
    """The group's epoch: it changes with every rebalance."""
    host, _, port = node.kafka.rpartition(":")
    connection = BrokerConnection(host, int(port), client_id="raw", timeout_s=_S)
    try:
        answer = connection.request(ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": [group]})
    finally:
        connection.close()
    epoch: int = answer["groups"][0]["group_epoch"]
    return epoch


def test_members_come_and_go_and_every_record_is_read_once(quick: NodeProcess, stream_name: str) -> None:
    admin = make(quick, stream_name)
    CONFLUENT.produce(quick.kafka, stream_name, [Record(b"%d" % at, partition=at % 4) for at in range(400)])
    committed: dict[int, int] = {}
    first = Reader(quick, stream_name, committed=committed)
    until(lambda: sum(committed.values()) == 400)
    assert len(first.seen) == 400
    found = described(admin, stream_name)
    assert (found.state, found.type, found.partition_assignor) == (
        ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER, "uniform",
    )  # fmt: skip
    assert [one.partition for one in found.members[0].assignment.topic_partitions] == [0, 1, 2, 3]
    second = Reader(quick, stream_name, committed=committed)
    until(lambda: shared(first, second))
    CONFLUENT.produce(quick.kafka, stream_name, [Record(b"%d" % at, partition=at % 4) for at in range(400, 800)])
    until(lambda: sum(committed.values()) == 800)
    assert len(first.seen) + len(second.seen) == 800
    first.leave()
    until(lambda: shared(second))
    listed = admin.list_consumer_groups(request_timeout=_S).result(_S).valid
    assert next(one for one in listed if one.group_id == stream_name).type == ConsumerGroupType.CONSUMER
    (refused,) = admin.delete_consumer_groups([stream_name], request_timeout=_S).values()
    with pytest.raises(KafkaException) as raised:
        refused.result(_S)
    assert raised.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    second.leave()
    assert described(admin, stream_name).state == ConsumerGroupState.EMPTY
    third = Reader(quick, stream_name)
    until(lambda: shared(third))
    third.leave()
    assert third.seen == [], "the offsets are committed"
    (deleted,) = admin.delete_consumer_groups([stream_name], request_timeout=_S).values()
    deleted.result(_S)


_DYING = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "group.protocol": "consumer"})
consumer.subscribe([sys.argv[2]])
while True:
    consumer.poll(0.1)
    if consumer.assignment():
        print("joined", flush=True)
"""


@pytest.mark.long
def test_a_member_that_dies_is_replaced(new_node: Callable[..., NodeProcess], stream_name: str) -> None:
    node = new_node({**_QUICK, "group.consumer.session.timeout.ms": 6000}).start()
    make(node, stream_name)
    with subprocess.Popen([sys.executable, "-c", _DYING, node.kafka, stream_name], stdout=subprocess.PIPE) as dying:
        assert dying.stdout is not None
        assert dying.stdout.readline() == b"joined\n"
        heir = Reader(node, stream_name)
        until(lambda: len(heir.assigned) == 2)
        dying.kill()
    until(lambda: shared(heir))
    heir.leave()


def test_a_static_member_comes_back_to_what_it_had(quick: NodeProcess, stream_name: str) -> None:
    make(quick, stream_name)
    staying = Reader(quick, stream_name, group_instance_id="staying")
    going = Reader(quick, stream_name, group_instance_id="going")
    until(lambda: shared(staying, going))
    share, epoch, rebalances = going.assigned, epoch_of(quick, stream_name), staying.rebalances
    going.leave()
    back = Reader(quick, stream_name, group_instance_id="going")
    until(lambda: back.assigned == share)
    assert (epoch_of(quick, stream_name), staying.rebalances) == (epoch, rebalances)
    for member in (back, staying):
        member.leave()


@pytest.mark.long
def test_a_regular_expression_finds_streams_that_come(quick: NodeProcess, stream_name: str) -> None:
    make(quick, f"{stream_name}-1", 1)
    reader = Reader(quick, f"^{stream_name}-[0-9]")
    until(lambda: reader.assigned == {(f"{stream_name}-1", 0)})
    admin = make(quick, f"{stream_name}-2", 2)
    make(quick, f"{stream_name}-no", 2)
    until(lambda: len(reader.assigned) == 3)
    for future in admin.delete_topics([f"{stream_name}-1"]).values():
        future.result(_S)
    until(lambda: reader.assigned == {(f"{stream_name}-2", 0), (f"{stream_name}-2", 1)})
    reader.leave(in_peace=False)


@pytest.mark.long
def test_more_partitions_are_shared_out(quick: NodeProcess, stream_name: str) -> None:
    admin = make(quick, stream_name, 1)
    one, two = Reader(quick, stream_name), Reader(quick, stream_name)
    until(lambda: one.assigned or two.assigned)
    for future in admin.create_partitions([untyped("confluent_kafka.admin").NewPartitions(stream_name, 4)]).values():
        future.result(_S)
    until(lambda: shared(one, two))
    one.leave()
    two.leave()


@pytest.mark.long
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_members_keep_what_they_have_while_the_node_comes_back(
    new_node: Callable[..., NodeProcess], stream_name: str, how: str
) -> None:
    node = new_node(_QUICK).start()
    make(node, stream_name)
    committed: dict[int, int] = {}
    one, two = Reader(node, stream_name, committed=committed), Reader(node, stream_name, committed=committed)
    until(lambda: shared(one, two))
    CONFLUENT.produce(node.kafka, stream_name, [Record(b"%d" % at, partition=at % 4) for at in range(40)])
    until(lambda: sum(committed.values()) == 40)
    shares, epoch, rebalances = (one.assigned, two.assigned), epoch_of(node, stream_name), one.rebalances
    if how == "kill":
        node.kill()
    else:
        node.stop()
    node.restart()
    CONFLUENT.produce(node.kafka, stream_name, [Record(b"%d" % at, partition=at % 4) for at in range(40, 80)])
    until(lambda: len(one.values | two.values) == 80)
    assert (one.assigned, two.assigned) == shares
    assert (epoch_of(node, stream_name), one.rebalances) == (epoch, rebalances), "nobody had to join again"
    for member in (one, two):
        member.leave(in_peace=False)


class _Flow:
    """Records, produced until it is told to stop."""

    def __init__(self, node: NodeProcess, stream: str) -> None:
        self.produced = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(node.kafka, stream))
        self._thread.start()

    def _run(self, address: str, stream: str) -> None:
        producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
        while not self._stop.wait(0.01):
            for _ in range(20):
                producer.produce(stream, b"%d" % self.produced, partition=self.produced % _PARTITIONS)
                self.produced += 1
            producer.poll(0)
        assert producer.flush(60) == 0

    def stop(self) -> set[bytes]:
        """No more; what was produced."""
        self._stop.set()
        self._thread.join()
        return {b"%d" % number for number in range(self.produced)}


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.long
def test_a_group_goes_over_under_load_and_back(quick: NodeProcess, stream_name: str, strategy: str) -> None:
    """Nothing is lost, and nothing that was committed is read again, while members change their protocol one by one."""
    admin = make(quick, stream_name)
    flow = _Flow(quick, stream_name)
    committed: dict[int, int] = {}
    everyone: list[Reader] = []

    def join(protocol: str) -> Reader:
        everyone.append(Reader(quick, stream_name, protocol, committed))
        return everyone[-1]

    try:
        members = [join(strategy), join(strategy)]
        until(lambda: shared(*members))
        assert described(admin, stream_name).type == ConsumerGroupType.CLASSIC
        for protocol in ("consumer", strategy):
            for at in range(2):
                leaving = members[at]
                members[at] = join(protocol)
                until(lambda: all(member.assigned for member in members))
                leaving.leave()
                until(lambda: shared(*members))
            expected = ConsumerGroupType.CONSUMER if protocol == "consumer" else ConsumerGroupType.CLASSIC
            assert described(admin, stream_name).type == expected
        wanted = flow.stop()
        until(lambda: set().union(*(member.values for member in everyone)) >= wanted)
    finally:
        flow.stop()
        for member in everyone:
            member.leave()


@pytest.mark.long
def test_who_stays_keeps_what_it_has_when_the_last_new_member_goes(quick: NodeProcess, stream_name: str) -> None:
    """Members that follow a group back to the classic protocol are called to join again; none loses what it has."""
    admin = make(quick, stream_name)
    old = [Reader(quick, stream_name, "cooperative-sticky") for _ in range(2)]
    until(lambda: shared(*old))
    new = Reader(quick, stream_name)
    until(lambda: shared(*old, new) and described(admin, stream_name).state == ConsumerGroupState.STABLE)
    kept, lost = [member.assigned for member in old], [member.lost for member in old]
    new.leave()
    until(lambda: shared(*old) and described(admin, stream_name).state == ConsumerGroupState.STABLE)
    assert described(admin, stream_name).type == ConsumerGroupType.CLASSIC
    assert all(member.assigned >= before for member, before in zip(old, kept, strict=True))
    assert [member.lost for member in old] == lost
    for member in old:
        member.leave()


@pytest.mark.long
def test_every_library_s_classic_members_live_beside_new_ones(quick: NodeProcess, stream_name: str) -> None:
    make(quick, stream_name)
    flow = _Flow(quick, stream_name)
    old: list[Member] = []
    new: list[Reader] = []
    try:
        libraries = ("kafka-python", "aiokafka", "confluent-kafka")
        old += [MEMBERS[library](quick.kafka, stream_name, stream_name).start() for library in libraries]
        until(lambda: shared(*old))
        new.append(Reader(quick, stream_name))
        until(lambda: shared(*old, *new))
        for at in range(3):
            old[at].leave()
            staying = old[at + 1 :]
            until(partial(shared, *staying, *new))
        wanted = flow.stop()
        until(lambda: {value for member in old for _, value in list(member.seen)} | new[0].values >= wanted)
    finally:
        flow.stop()
        for member in new:
            member.leave()


def test_what_a_heartbeat_may_not_say(quick: NodeProcess, stream_name: str) -> None:
    host, _, port = quick.kafka.rpartition(":")
    connection = BrokerConnection(host, int(port), client_id="raw", timeout_s=_S)
    good = {
        "group_id": stream_name, "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["a"], "topic_partitions": [],
    }  # fmt: skip

    def refused(**changed: object) -> ErrorCode:
        answer = connection.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, {**good, **changed})
        return ErrorCode(answer["error_code"])

    invalid: list[dict[str, object]] = [
        {"group_id": ""}, {"member_id": ""}, {"member_epoch": -3}, {"member_epoch": -2}, {"instance_id": ""},
        {"rack_id": ""}, {"rebalance_timeout_ms": -1}, {"topic_partitions": None},
        {"subscribed_topic_names": None}, {"topic_partitions": [{"topic_id": UUID(int=1), "partitions": [1]}]},
    ]  # fmt: skip
    for changed in invalid:
        assert refused(**changed) == ErrorCode.INVALID_REQUEST, changed
    assert refused(server_assignor="nobody") == refused(server_assignor="") == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert refused(subscribed_topic_regex="a(") == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused(member_epoch=1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused() == ErrorCode.NONE
    assert refused(member_epoch=7) == ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(member_id="n", member_epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(member_id="s", instance_id="i") == ErrorCode.NONE
    assert refused(member_id="t", instance_id="i") == ErrorCode.UNRELEASED_INSTANCE_ID
    assert refused(member_id="t", instance_id="i", member_epoch=3) == ErrorCode.FENCED_INSTANCE_ID
    features = connection.request(ApiKey.API_VERSIONS, {"client_software_name": "x", "client_software_version": "1"})
    assert {"name": "group.version", "max_version_level": 1, "min_version_level": 1} in features["finalized_features"]
    connection.close()
