"""Three real nodes and an operator: shown, leaders and replicas moved, a fourth node that comes and goes."""

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.cli.command import Ended, run
from tests.clients import until
from tests.doors.kafka.asking import Asking
from tests.untyped import untyped

import duramen
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess, hold_port
from duramen.node.processes import NodeProcesses

_WAIT_S = 30.0
_RECORDS = 200


class Operator:
    """Three nodes, and who looks after them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nodes = NodeProcesses(directory)
        self.ending = contextlib.ExitStack()

    def command(self, *words: str, node: int = 1) -> Ended:
        """`duramen cluster WORDS…`, of one of the nodes."""
        return run("cluster", *words, server=self.nodes.nodes[node].http)

    def done(self, *words: str, node: int = 1) -> str:
        """What a command says that does what it is to."""
        ended = self.command(*words, node=node)
        assert ended.code == 0, ended.err + ended.out
        return ended.out

    def status(self, node: int = 1) -> dict[str, Any]:
        """The cluster as a node tells of it."""
        found: dict[str, Any] = json.loads(self.done("status", "--format", "json", node=node))
        return found

    def node(self, number: int) -> Mapping[str, Any] | None:
        """A node as another one tells of it."""
        return next((node for node in self.status()["nodes"] if node["id"] == number), None)

    def state(self, number: int) -> str:
        found = self.node(number)
        return "" if found is None else str(found["state"])

    def voters(self) -> list[int]:
        return [voter["node_id"] for voter in self.status()["quorum"]["voters"]]

    def directories(self) -> list[str]:
        """The data directories of the voters."""
        return [voter["directory_id"] for voter in self.status()["quorum"]["voters"]]

    @cached_property
    def admin(self) -> AdminClient:
        """An admin client of all nodes."""
        return AdminClient({"bootstrap.servers": self.nodes.bootstrap_servers})

    def create(self, name: str, partitions: int, replicas: int) -> None:
        """Create a stream, and wait until all that hold it are in sync."""
        self.admin.create_topics([NewTopic(name, partitions, replicas)])[name].result(_WAIT_S)
        until(lambda: self.in_sync(name) == [replicas] * partitions, _WAIT_S)

    def placed(self, name: str) -> dict[int, tuple[int, list[int], list[int]]]:
        """Leader, replicas and in-sync set of each partition."""
        found = self.admin.list_topics(name, timeout=_WAIT_S).topics[name].partitions
        return {index: (one.leader, list(one.replicas), list(one.isrs)) for index, one in found.items()}

    def in_sync(self, name: str) -> list[int]:
        return [len(isr) for _, _, isr in self.placed(name).values()]

    def quiet(self) -> bool:
        """Whether every partition has a leader and all replicas in sync, and none moves."""
        partitions = self.status()["partitions"]
        return not any(partitions[kind]["count"] for kind in ("leaderless", "under_replicated", "moving"))

    def join(self, number: int) -> NodeProcess:
        """Another node comes."""
        held = hold_port()
        self.ending.callback(held.close)
        settings = {
            "node.id": number,
            "cluster.listen": f"127.0.0.1:{held.getsockname()[1]}",
            "cluster.seeds": self.nodes.cluster[2],
            "cluster.secret.file": str(self.directory / "secret"),
        }
        node = NodeProcess(self.directory / f"node{number}", settings)
        self.ending.callback(lambda: node.kill() if node.running else None)
        return node.start(_WAIT_S)


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """One cluster for all tests of this module."""
    made = Operator(tmp_path_factory.mktemp("operated"))
    with made.ending:
        made.ending.enter_context(made.nodes)
        yield made
        for log in made.nodes.logs().values():
            assert "Traceback" not in log


@pytest.mark.long
def test_every_node_shows_the_cluster(operator: Operator) -> None:
    operator.create("shown", 3, 3)
    until(operator.quiet, _WAIT_S)
    for number in (1, 2, 3):
        found = operator.status(number)
        assert (found["alone"], found["node_id"], found["quorum"]["from_leader"]) == (False, number, True)
        assert sorted(voter["node_id"] for voter in found["quorum"]["voters"]) == [1, 2, 3]
        assert [(node["id"], node["state"], node["votes"]) for node in found["nodes"]] == [
            (1, "live", True), (2, "live", True), (3, "live", True),
        ]  # fmt: skip
        assert [node["endpoints"]["kafka"] for node in found["nodes"]] == [
            node.kafka for node in operator.nodes.nodes.values()
        ]
        assert sum(node["leaders"] for node in found["nodes"]) == found["partitions"]["count"]
        assert [node["health"]["storage"] for node in found["nodes"]] == ["writable"] * 3
        assert [node["lag"]["records"] for node in found["nodes"]] == [0, 0, 0]
    said = operator.done("status")
    assert f"node {operator.status()['quorum']['leader_id']} leads in epoch" in said
    assert len(said.splitlines()) <= 24


def test_unmodified_clients_see_and_change_it(operator: Operator) -> None:
    operator.create("clients", 2, 3)
    admin = operator.admin
    assert sorted(node.id for node in admin.describe_cluster().result(_WAIT_S).nodes) == [1, 2, 3]
    python_admin = untyped("kafka.admin").KafkaAdminClient(bootstrap_servers=operator.nodes.bootstrap_servers)
    quorum = python_admin.describe_metadata_quorum()["topics"][0]["partitions"][0]
    assert quorum["leader_id"] == operator.status()["quorum"]["leader_id"]
    assert sorted(row["replica_id"] for row in quorum["current_voters"]) == [1, 2, 3]
    python_admin.close()
    found = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("clients", 0)]).result(_WAIT_S)
    assert [error.code() for error in found.values()] == [ErrorCode.ELECTION_NOT_NEEDED]
    _, replicas, _ = operator.placed("clients")[0]
    wish = {"topics": [{"name": "clients", "partitions": [{"partition_index": 0, "replicas": replicas[:2]}]}]}
    with Asking(operator.nodes.nodes[3]) as asking:
        (topic,) = asking.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, wish)["responses"]
        live = asking.ask(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 2})
    assert [part["error_code"] for part in topic["partitions"]] == [ErrorCode.NONE]
    assert (live["error_code"], live["error_message"][:14]) == (ErrorCode.INVALID_REQUEST, "node 2 is live")
    until(lambda: operator.placed("clients")[0][1] == replicas[:2], _WAIT_S)


def test_leaders_are_moved_and_come_back(operator: Operator) -> None:
    operator.create("led", 1, 3)
    leader, replicas, _ = operator.placed("led")[0]
    other = next(node for node in replicas if node != leader)
    assert operator.done("elect", "led", "0", "--leader", str(other), node=2).split()[-1] == "elected"
    until(lambda: operator.placed("led")[0][0] == other, _WAIT_S)
    assert operator.done("elect", node=3).splitlines()[1].split() == ["led", "0", "elected"]
    until(lambda: operator.placed("led")[0][0] == leader, _WAIT_S)


@pytest.mark.long
def test_a_node_comes_takes_its_share_votes_and_goes(operator: Operator) -> None:
    operator.create("moved", 8, 2)
    producer = Producer({"bootstrap.servers": operator.nodes.bootstrap_servers, "acks": "all"})
    for number in range(_RECORDS):
        producer.produce("moved", str(number).encode(), partition=number % 8)
    assert producer.flush(_WAIT_S) == 0

    fourth = operator.join(4)
    until(lambda: operator.state(4) == "live", _WAIT_S)
    if 4 not in operator.voters():
        assert operator.done("add", "4") == "Node 4 votes.\n"
    assert 4 in operator.voters()
    assert "another node has fewer replicas" in operator.done("rebalance", "--dry-run")
    assert "moves are done" in operator.done("rebalance", "--yes", "--at-once", "2")
    shares = {node["id"]: node["replicas"] for node in operator.status()["nodes"]}
    assert max(shares.values()) - min(shares.values()) <= 1

    assert "moves are done" in operator.done("rebalance", "--yes", "--without", "4", node=2)
    until(lambda: operator.quiet() and (operator.node(4) or {})["replicas"] == 0, _WAIT_S)
    refused = operator.command("remove", "4", "--yes")
    assert (refused.code, "node 4 is live: stop it" in refused.err) == (1, True)
    assert fourth.stop() == 0
    until(lambda: operator.state(4) == "fenced", _WAIT_S)
    assert operator.done("remove", "4", "--yes") == "Node 4 is removed from the cluster.\n"
    until(lambda: operator.node(4) is None and operator.voters() == [1, 2, 3], _WAIT_S)
    with untyped("kafka").KafkaConsumer(
        "moved", bootstrap_servers=operator.nodes.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        seen: set[bytes] = set()

        def all_seen() -> bool:
            seen.update(record.value for records in consumer.poll(500).values() for record in records)
            return len(seen) == _RECORDS

        until(all_seen, _WAIT_S)


def test_a_node_drains_and_leads_again_once_it_is_restarted(operator: Operator) -> None:
    operator.create("drained", 3, 3)
    assert "drains" in operator.done("drain", "2")
    until(lambda: (operator.node(2) or {})["leaders"] == 0, _WAIT_S)
    assert operator.state(2) == "draining"
    assert operator.nodes.stop(2) == 0
    until(lambda: operator.state(2) == "fenced", _WAIT_S)
    assert operator.status()["partitions"]["leaderless"]["count"] == 0
    operator.nodes.start([2])
    until(lambda: operator.state(2) == "live" and operator.quiet(), _WAIT_S)
    operator.done("elect")
    until(lambda: (operator.node(2) or {})["leaders"] > 0, _WAIT_S)


@pytest.mark.long
def test_without_a_majority_a_node_shows_what_it_knows(operator: Operator) -> None:
    operator.nodes.kill(2, 3)
    until(lambda: not operator.status()["quorum"]["from_leader"], _WAIT_S)
    assert sorted(operator.voters()) == [1, 2, 3]
    operator.nodes.start([2, 3])
    until(operator.quiet, _WAIT_S)


@pytest.mark.long
def test_a_node_that_is_stopped_without_a_majority_waits_a_moment_and_ends_clean(operator: Operator) -> None:
    operator.nodes.kill(2, 3)
    until(lambda: not operator.status()["quorum"]["from_leader"], _WAIT_S)
    log = operator.nodes.nodes[1].log_path
    said = len(log.read_text())
    assert operator.nodes.stop(1) == 0
    assert "the controller does not respond, so the leaderships of this node were not moved" in log.read_text()[said:]
    assert "not closed" not in log.read_text()[said:]
    operator.nodes.start([1, 2, 3])
    until(operator.quiet, _WAIT_S)


def test_a_node_with_a_blank_disk_comes_back_with_a_vote_and_all_that_it_held(operator: Operator) -> None:
    operator.create("refilled", 2, 3)
    producer = Producer({"bootstrap.servers": operator.nodes.bootstrap_servers, "acks": "all"})
    producer.produce("refilled", b"kept", partition=0)
    assert producer.flush(_WAIT_S) == 0
    before = operator.directories()
    operator.nodes.kill(3)
    shutil.rmtree(operator.nodes.nodes[3].data_dir)
    operator.nodes.start([3])
    until(lambda: operator.state(3) == "live" and operator.quiet(), _WAIT_S)
    until(lambda: operator.voters() == [1, 2, 3] and operator.directories() != before, _WAIT_S)
    assert operator.directories()[:2] == before[:2]


def test_a_stream_of_more_partitions_than_are_made_in_one_turn(operator: Operator) -> None:
    count = 450
    operator.create("large", count, 2)
    _send(operator, "large", 0, count - 1)
    operator.admin.create_partitions([NewPartitions("large", 2 * count)])["large"].result(_WAIT_S)
    until(lambda: operator.in_sync("large") == [2] * (2 * count), _WAIT_S)
    _send(operator, "large", 0, count, 2 * count - 1)


def _send(operator: Operator, name: str, *partitions: int) -> None:
    """A record to each of these, which all replicas acknowledge."""
    failed: list[object] = []

    def told(error: object, _: object) -> None:
        failed.extend([] if error is None else [error])

    producer = Producer({"bootstrap.servers": operator.nodes.bootstrap_servers, "acks": "all"})
    for partition in partitions:
        producer.produce(name, b"here", partition=partition, on_delivery=told)
    assert producer.flush(_WAIT_S) == 0
    assert failed == []


def test_streams_and_groups_are_the_same_from_every_node(operator: Operator) -> None:
    servers = [node.http for node in operator.nodes.nodes.values()]

    def command(*words: str, server: str = servers[0]) -> Any:
        ended = run(*words, "--format", "json", server=server)
        assert ended.code == 0, ended.err + ended.out
        return json.loads(ended.out)

    command("stream", "create", "single", "--partitions", "3", "--replication-factor", "1")
    other = run("stream", "create", "single", "--partitions", "3", "--replication-factor", "2", server=servers[0])
    assert "exists with the replication factor 1, not 2" in other.err
    many = run("stream", "create", "many", "--replication-factor", "9", server=servers[0])
    assert "a replication factor of 9 needs as many nodes" in many.err
    producer = Producer({"bootstrap.servers": operator.nodes.bootstrap_servers, "acks": "all"})
    for number in range(_RECORDS):
        producer.produce("single", b"x", partition=number % 3)
    assert producer.flush(_WAIT_S) == 0
    ends = [67, 67, 66]
    for server in servers:
        shown = command("stream", "describe", "single", server=server)["partitions"]
        assert [part["high_watermark"] for part in shown] == ends
        assert len({part["leader"] for part in shown}) > 1
        assert all(part["replicas"] == part["in_sync"] == [part["leader"]] for part in shown)
        (listed,) = [one for one in command("stream", "list", server=server) if one["name"] == "single"]
        # The copy into segments ends between two looks, and its floor with it.
        assert [{**part, "floors": []} for part in listed["partitions"]] == [{**part, "floors": []} for part in shown]
        with duramen.connect(server) as client:
            assert [part.high_watermark for part in client.streams.describe("single").partitions] == ends
            (found,) = client.streams.list(prefix="single")
            assert [part.high_watermark for part in found.partitions] == ends

    header = run("stream", "describe", "single", server=servers[0]).out.split("PARTITION", 1)[1].splitlines()[0]
    assert header.split()[-4:] == ["LEADER", "REPLICAS", "IN", "SYNC"]

    deleted = command("stream", "delete-records", "single", "--before", "5", "--yes")
    assert [one["start_offset"] for one in deleted] == [5, 5, 5]
    places = [TopicPartition("single", index, 10) for index in range(3)]
    consumer = Consumer({"bootstrap.servers": operator.nodes.bootstrap_servers, "group.id": "looked"})
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
    for server in servers:
        offsets = command("group", "describe", "looked", server=server)["offsets"]
        assert [offset["lag_records"] for offset in offsets] == [end - 10 for end in ends]
        (row,) = [one for one in command("group", "list", server=server) if one["id"] == "looked"]
        assert row["lag_records"] == _RECORDS - 30
        moved = command("group", "reset", "looked", "--to", "-1", "--dry-run", server=server)
        assert [one["after"] for one in moved] == [end - 1 for end in ends]
        with duramen.connect(server) as client:
            assert [one.lag_records for one in client.groups.describe("looked").offsets] == [end - 10 for end in ends]
            assert [one.after for one in client.groups.reset("looked", "end", dry_run=True)] == ends


def _described(operator: Operator, name: str) -> list[dict[str, Any]]:
    ended = run("stream", "describe", name, "--format", "json", server=operator.nodes.nodes[1].http)
    parts: list[dict[str, Any]] = json.loads(ended.out)["partitions"]
    return parts
