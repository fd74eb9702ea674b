"""`duramen consume --group`: a member of a consumer group like any other."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer as Librdkafka
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from tests.cli.command import Run, command_environment, run

from duramen.client import BrokerCluster, Producer, StreamAdmin, TopicPartition
from duramen.client.coordinator import GroupCoordinatorClient
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess


@pytest.fixture
def stream(node: NodeProcess, stream_name: str) -> str:
    """A stream of two partitions with the records 0 to 9, the even ones in partition 0."""
    with BrokerCluster(node.kafka) as cluster:
        StreamAdmin(cluster).create_stream(stream_name, 2)
    write(node, stream_name, range(10))
    return stream_name


def write(node: NodeProcess, stream: str, numbers: range) -> None:
    with BrokerCluster(node.kafka) as cluster, Producer(cluster) as producer:
        for number in numbers:
            producer.produce(stream, b"%d" % number, partition=number % 2)


def committed(node: NodeProcess, stream: str) -> list[int]:
    """What an unchanged client is told; -1001 is nothing."""
    consumer = Librdkafka({"bootstrap.servers": node.kafka, "group.id": "g" + stream})
    found = consumer.committed([LibrdkafkaPartition(stream, index) for index in range(2)], timeout=60)
    consumer.close()
    return [one.offset for one in found]


def wait_for_commit(node: NodeProcess, stream: str, offsets: list[int]) -> None:
    """What is out is committed a second later."""
    deadline = time.monotonic() + 60
    while committed(node, stream) != offsets:
        assert time.monotonic() < deadline


def member_ids(node: NodeProcess, stream: str) -> list[str]:
    """Those who have their shares; none while the group shares its partitions out."""
    with BrokerCluster(node.kafka) as cluster:
        coordinator = GroupCoordinatorClient(cluster, "g" + stream)
        (described,) = coordinator.ask(ApiKey.DESCRIBE_GROUPS, {"groups": ["g" + stream]})["groups"]
    return [member["member_id"] for member in described["members"]] if described["group_state"] == "Stable" else []


def gone(node: NodeProcess, stream: str) -> bool:
    """Whether the group has no members."""
    with BrokerCluster(node.kafka) as cluster:
        coordinator = GroupCoordinatorClient(cluster, "g" + stream)
        (described,) = coordinator.ask(ApiKey.DESCRIBE_GROUPS, {"groups": ["g" + stream]})["groups"]
    return bool(described["group_state"] == "Empty")


def following(node: NodeProcess, stream: str, *words: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "duramen", "consume", stream, "--group", "g" + stream, "--follow", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=command_environment(node.http),
    )  # fmt: skip


def read(process: "subprocess.Popen[bytes]", count: int) -> list[int]:
    assert process.stdout is not None
    return sorted(int(process.stdout.readline()) for _ in range(count))


def interrupt(process: "subprocess.Popen[bytes]") -> bytes:
    """Ctrl-C; what it says on the way out."""
    process.send_signal(signal.SIGINT)
    rest, said = process.communicate(timeout=60)
    assert (process.returncode, rest) == (130, b"")
    return said.strip()


def test_it_goes_on_where_the_group_is(duramen: Run, node: NodeProcess, stream: str) -> None:
    words = ("consume", stream, "--group", "g" + stream)
    some = sorted(map(int, duramen(*words, "-n", "3").out.splitlines()))
    assert len(some) == 3
    assert sum(max(0, offset) for offset in committed(node, stream)) == 3
    assert gone(node, stream)
    rest = duramen(*words)
    assert (rest.code, rest.err) == (0, "")
    assert sorted(some + list(map(int, rest.out.splitlines()))) == list(range(10))
    assert committed(node, stream) == [5, 5]
    assert duramen(*words) == (0, "", "")
    write(node, stream, range(10, 12))
    assert sorted(duramen(*words).out.splitlines()) == ["10", "11"]


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--offset", "-1"), [8, 9]),
        (("--offset", "end"), []),
        (("--until", "-2"), [0, 1, 2, 3, 4, 5]),
        (("-n", "0"), []),
    ],
)
def test_where_nothing_is_committed(duramen: Run, stream: str, words: tuple[str, ...], expected: list[int]) -> None:
    ended = duramen("consume", stream, "--group", "g" + stream, *words)
    assert (ended.code, ended.err) == (0, "")
    assert sorted(map(int, ended.out.splitlines())) == expected


def test_an_unchanged_client_goes_on_where_it_was(duramen: Run, node: NodeProcess, stream: str) -> None:
    assert duramen("consume", stream, "--group", "g" + stream).code == 0
    write(node, stream, range(10, 20))
    theirs = Librdkafka({"bootstrap.servers": node.kafka, "group.id": "g" + stream, "auto.offset.reset": "earliest"})
    theirs.subscribe([stream])
    found: list[int] = []
    while len(found) < 5:
        found += [int(message.value() or b"") for message in theirs.consume(5 - len(found), timeout=1)]
    theirs.commit(asynchronous=False)
    theirs.close()
    rest = duramen("consume", stream, "--group", "g" + stream)
    assert sorted(found + list(map(int, rest.out.splitlines()))) == list(range(10, 20))


@pytest.mark.long
def test_members_share_the_partitions_and_take_over(node: NodeProcess, stream: str) -> None:
    with following(node, stream) as one:
        assert read(one, 10) == list(range(10))
        with following(node, stream) as two:
            # What is written once the second has a share comes to one of them, and once.
            while len(member_ids(node, stream)) < 2:
                pass
            write(node, stream, range(10, 12))
            (mine,) = read(two, 1)
            (other,) = read(one, 1)
            assert {mine, other} == {10, 11}
            wait_for_commit(node, stream, [6, 6])
            assert interrupt(one) == b""
            write(node, stream, range(12, 14))
            assert read(two, 2) == [12, 13]
            wait_for_commit(node, stream, [7, 7])
            assert interrupt(two) == b""
    assert gone(node, stream)


def test_what_is_out_is_committed_while_it_follows(node: NodeProcess, stream: str) -> None:
    with following(node, stream) as process:
        assert read(process, 10) == list(range(10))
        wait_for_commit(node, stream, [5, 5])
        process.kill()
        process.communicate()


@pytest.mark.long
def test_who_was_given_up_says_so_and_joins_again(node: NodeProcess, stream: str) -> None:
    """As when nobody reads its output for longer than the session timeout."""
    with following(node, stream) as process:
        assert read(process, 10) == list(range(10))
        wait_for_commit(node, stream, [5, 5])
        process.send_signal(signal.SIGSTOP)
        (member_id,) = member_ids(node, stream)
        with BrokerCluster(node.kafka) as cluster:
            members = [{"member_id": member_id}]
            GroupCoordinatorClient(cluster, "g" + stream).ask(
                ApiKey.LEAVE_GROUP, {"group_id": "g" + stream, "members": members, "member_id": ""}
            )
        write(node, stream, range(10, 12))
        process.send_signal(signal.SIGCONT)
        wait_for_commit(node, stream, [6, 6])
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=60)
    assert process.returncode == 130
    numbers = sorted(map(int, rest.splitlines()))
    assert set(numbers) == {10, 11}
    # What it printed before it knew is printed again by whoever has the partition now, and that is said.
    assert (len(numbers) > 2) == (b"removed this member before it could commit" in said)


def test_a_closed_pipe_commits_what_was_read_from_it_and_leaves(node: NodeProcess, stream: str) -> None:
    with following(node, stream) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert read(process, 10) == list(range(10))
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1
    assert committed(node, stream) == [5, 5]
    assert gone(node, stream)


def test_offsets_that_are_not_there_any_more(duramen: Run, node: NodeProcess, stream: str) -> None:
    with BrokerCluster(node.kafka) as cluster:
        GroupCoordinatorClient(cluster, "g" + stream).commit({TopicPartition(stream, 1): 99})
    ended = duramen("consume", stream, "--group", "g" + stream)
    assert ended.code == 0
    assert sorted(map(int, ended.out.splitlines())) == list(range(10))
    assert ended.err == (
        f"duramen: group g{stream} is at 99 in {stream}-1, which has the offsets 0 to 4; it continues at 0\n"
    )


@pytest.mark.long
def test_it_outlives_the_node(new_node: Callable[..., NodeProcess]) -> None:
    with new_node() as node:
        run("stream", "create", "s", "--partitions", "2", server=node.http)
        write(node, "s", range(4))
        with following(node, "s") as process:
            assert process.stderr is not None
            assert read(process, 4) == [0, 1, 2, 3]
            node.kill()
            assert process.stderr.readline().endswith(b"; waiting\n")
            node.restart()
            write(node, "s", range(4, 6))
            found = {*read(process, 2)}
            while found != {4, 5}:  # what was not committed comes again
                found = {*read(process, 1), *found} - {0, 1, 2, 3}
            wait_for_commit(node, "s", [3, 3])
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        assert process.returncode == 130


def test_wrong_group(duramen: Run, stream: str) -> None:
    ended = duramen("consume", stream, "--group", "")
    assert ended.code == 1
    assert ended.err.endswith("[group-id-invalid]\n")
    assert ended.err.count("\n") == 1
