"""Being a member of a consumer group, among members of this client and of others."""

import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer as Librdkafka
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from tests.clients import until

from duramen.base.errors import GroupIdInvalid, InconsistentProtocol, StreamNotFound
from duramen.client import BrokerCluster, Consumer, GroupMembership, StreamAdmin, TopicPartition
from duramen.client.coordinator import GroupCoordinatorClient
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

DEADLINE_S = 60


@pytest.fixture
def group(stream: str) -> str:
    return f"{stream}-group"


@pytest.fixture
def new_member(node: NodeProcess, stream: str, group: str) -> Iterator[Callable[[], GroupMembership]]:
    """Makes members with connections of their own, which hear of everything at their next heartbeat."""
    made: list[tuple[BrokerCluster, GroupMembership]] = []

    def make() -> GroupMembership:
        cluster = BrokerCluster(node.kafka, timeout_s=60)
        member = GroupMembership(cluster, group, [stream], heartbeat_ms=0)
        made.append((cluster, member))
        return member

    yield make
    for cluster, member in made:
        member.leave()
        cluster.close()


def partitions(member: GroupMembership) -> list[int]:
    return sorted(at.partition for at in member.assigned)


def settle(*members: GroupMembership) -> None:
    """Each joins as often as the others make it do so, until all are in one generation and have what it gave them."""
    over = threading.Event()

    def stay(member: GroupMembership) -> None:
        while not over.is_set():
            if not member.heartbeat():
                member.join()

    def settled() -> bool:
        given = sorted(index for member in members for index in partitions(member))
        return len({member.identity.number for member in members}) == 1 and given == [0, 1, 2]

    threads = [threading.Thread(target=stay, args=[member]) for member in members]
    for thread in threads:
        thread.start()
    try:
        until(settled)
    finally:
        over.set()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def kick_out(cluster: BrokerCluster, group: str) -> None:
    """All members, as if they had been silent for too long."""
    coordinator = GroupCoordinatorClient(cluster, group)
    (described,) = coordinator.ask(ApiKey.DESCRIBE_GROUPS, {"groups": [group]})["groups"]
    members = [{"member_id": member["member_id"]} for member in described["members"]]
    assert members
    coordinator.ask(ApiKey.LEAVE_GROUP, {"group_id": group, "members": members})


def test_alone_it_gets_everything_and_commits(
    node: NodeProcess, stream: str, group: str, new_member: Callable[[], GroupMembership]
) -> None:
    member = new_member()
    assert not member.heartbeat()
    member.join()
    assert partitions(member) == [0, 1, 2]
    assert member.committed() == {}
    assert member.heartbeat()
    assert member.commit({TopicPartition(stream, 1): 5, TopicPartition(stream, 2): 0})
    assert member.commit({})
    assert member.committed() == {TopicPartition(stream, 1): 5, TopicPartition(stream, 2): 0}
    theirs = Librdkafka({"bootstrap.servers": node.kafka, "group.id": group})
    found = theirs.committed([LibrdkafkaPartition(stream, index) for index in range(3)], timeout=60)
    theirs.close()
    assert [one.offset for one in found] == [-1001, 5, 0]
    member.leave()
    assert member.assigned == ()
    assert not member.heartbeat()


def test_members_share_and_take_over(stream: str, new_member: Callable[[], GroupMembership]) -> None:
    one, two = new_member(), new_member()
    one.join()
    first = threading.Thread(target=two.join)
    first.start()
    while one.heartbeat():
        pass
    # While the group waits for it, it may still commit what it has done.
    assert one.commit({TopicPartition(stream, 0): 3})
    one.join()
    first.join(DEADLINE_S)
    assert sorted(partitions(one) + partitions(two)) == [0, 1, 2]
    assert {len(one.assigned), len(two.assigned)} == {1, 2}
    one.leave()
    while two.heartbeat():
        pass
    two.join()
    assert partitions(two) == [0, 1, 2]
    assert two.committed() == {TopicPartition(stream, 0): 3}


def test_more_members_than_partitions(new_member: Callable[[], GroupMembership]) -> None:
    members = [new_member() for _ in range(4)]
    settle(*members)
    assert sorted(len(member.assigned) for member in members) == [0, 1, 1, 1]
    assert sorted(index for member in members for index in partitions(member)) == [0, 1, 2]


def test_who_was_given_up_commits_nothing_and_joins_again(
    cluster: BrokerCluster, stream: str, group: str, new_member: Callable[[], GroupMembership]
) -> None:
    member = new_member()
    member.join()
    assert member.commit({TopicPartition(stream, 0): 1})
    kick_out(cluster, group)
    assert not member.commit({TopicPartition(stream, 0): 2})
    assert not member.commit({TopicPartition(stream, 0): 2})
    assert not member.heartbeat()
    member.join()
    assert partitions(member) == [0, 1, 2]
    assert member.committed() == {TopicPartition(stream, 0): 1}
    kick_out(cluster, group)
    assert not member.heartbeat()


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_beside_an_unchanged_client(
    node: NodeProcess, stream: str, group: str, strategy: str, new_member: Callable[[], GroupMembership]
) -> None:
    """Whoever of the two leads, the other understands what it is given."""
    given: list[list[int]] = []
    theirs = Librdkafka(
        {"bootstrap.servers": node.kafka, "group.id": group, "partition.assignment.strategy": strategy,
         "heartbeat.interval.ms": 100}
    )  # fmt: skip
    theirs.subscribe([stream], on_assign=lambda _, ats: given.append(sorted(at.partition for at in ats)))
    while not given:
        theirs.poll(0.1)
    assert given == [[0, 1, 2]]
    ours = new_member()
    joining = threading.Thread(target=ours.join)
    joining.start()
    while len(given) < 2 or joining.is_alive():
        theirs.poll(0.1)
    assert sorted(given[1] + partitions(ours)) == [0, 1, 2]
    assert given[1]
    assert ours.assigned
    theirs.close()
    while ours.heartbeat():
        pass
    ours.join()
    assert partitions(ours) == [0, 1, 2]


def test_a_leader_shares_out_new_partitions(
    cluster: BrokerCluster, stream: str, new_member: Callable[[], GroupMembership], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duramen.client.group._COUNTS_S", 0.0)
    member = new_member()
    member.join()
    assert member.heartbeat()
    answer = cluster.ask(
        ApiKey.CREATE_PARTITIONS,
        {"topics": [{"name": stream, "count": 5, "assignments": None}], "timeout_ms": 10_000, "validate_only": False},
    )
    assert answer["results"][0]["error_code"] == 0
    assert not member.heartbeat()
    member.join()
    assert partitions(member) == [0, 1, 2, 3, 4]


def test_a_member_outlives_its_node(new_node: Callable[..., NodeProcess]) -> None:
    with new_node() as node, BrokerCluster(node.kafka, timeout_s=60) as cluster:
        StreamAdmin(cluster).create_stream("s", 2)
        member = GroupMembership(cluster, "g", ["s"], heartbeat_ms=0)
        member.join()
        assert member.commit({TopicPartition("s", 1): 1})
        node.kill()
        node.restart()
        assert member.commit({TopicPartition("s", 0): 7})
        if not member.heartbeat():
            member.join()
        assert partitions(member) == [0, 1]
        assert member.committed() == {TopicPartition("s", 0): 7, TopicPartition("s", 1): 1}
        member.leave()


def test_what_cannot_be_joined(node: NodeProcess, cluster: BrokerCluster, stream: str, group: str) -> None:
    with pytest.raises(GroupIdInvalid):
        GroupMembership(cluster, "", [stream]).join()
    theirs = Librdkafka(
        {"bootstrap.servers": node.kafka, "group.id": group, "partition.assignment.strategy": "cooperative-sticky"}
    )
    given: list[int] = []
    theirs.subscribe([stream], on_assign=lambda _, ats: given.append(len(ats)))
    while not given:
        theirs.poll(0.1)
    with pytest.raises(InconsistentProtocol):
        GroupMembership(cluster, group, [stream]).join()
    theirs.close()


@pytest.mark.long
def test_offsets_of_a_stream_that_is_gone(node: NodeProcess, stream: str, group: str) -> None:
    with BrokerCluster(node.kafka, timeout_s=10) as cluster, pytest.raises(StreamNotFound):
        Consumer(cluster).commit(group, {TopicPartition(f"{stream}-gone", 0): 1})
