"""Clusters of three real processes under faults, while unmodified clients produce and consume: nothing may show.

CLUSTER_SEED=N runs the long tests with another seed.
"""

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest
from confluent_kafka import Producer
from tests.clients import metric, unready, until
from tests.cluster.clients import (
    AiokafkaReader,
    AiokafkaSender,
    KafkaPythonReader,
    KafkaPythonSender,
    Undisturbed,
    Watching,
)
from tests.cluster.judged import Run, World, running, world
from tests.consistency.clients import TOPIC, Assigned, Client, PlainSender, Subscribed, Transactions
from tests.doors.kafka.asking import Asking
from tests.untyped import untyped

from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.fetch import FetchPartition, FetchRequest, FetchTopic, decode_response, encode_request
from duramen.codec.kafka.versions import ApiKey

_CONFLUENT: Final[Sequence[type[Client]]] = (PlainSender, PlainSender, Assigned, Watching)
_COORDINATED: Final[Sequence[type[Client]]] = (Transactions, Transactions, Subscribed, Subscribed)
_LONG_S: Final = 300.0
_WAIT_S: Final = 120.0
_LONG_MS: Final = 600_000
_SLOW_S: Final = 0.5
_NO_ID: Final = UUID(int=0)

Fault = Callable[[World, Run], None]


def _kill(cluster: World, node: int) -> None:
    cluster.nodes.kill(node)
    cluster.wait_without(node)
    cluster.nodes.start([node])


def _kill_leader(cluster: World, _: Run) -> None:
    _kill(cluster, cluster.leader())


def _kill_follower(cluster: World, _: Run) -> None:
    _kill(cluster, cluster.others(cluster.leader())[-1])


def _kill_controller(cluster: World, _: Run) -> None:
    _kill(cluster, cluster.controller())


def _kill_all(cluster: World, _: Run) -> None:
    cluster.nodes.kill(*cluster.nodes.nodes)
    cluster.nodes.start()


def _pause(cluster: World, _: Run) -> None:
    leader = cluster.leader()
    cluster.nodes.pause(leader)
    cluster.wait_without(leader)
    cluster.nodes.resume(leader)


def _part(cluster: World, _: Run) -> None:
    leader = cluster.leader()
    cluster.network.part([leader], cluster.others(leader))
    cluster.wait_without(leader)
    cluster.network.heal()


def _cut_one_way(cluster: World, sender: int) -> None:
    receiver, third = cluster.others(sender)
    cluster.network.cut(sender, receiver)
    until(lambda: any(len(one.in_sync) < 3 for one in cluster.layouts(third).values()))
    cluster.network.heal()


def _mute_controller(cluster: World, _: Run) -> None:
    """One node hears nothing of the controller's leader."""
    _cut_one_way(cluster, cluster.controller())


def _mute_follower(cluster: World, _: Run) -> None:
    """One node hears nothing of another, and both have the controller."""
    _cut_one_way(cluster, cluster.others(cluster.controller())[0])


def _reset(cluster: World, run: Run) -> None:
    leader = cluster.leader()
    for other in cluster.others(leader):
        assert cluster.network.reset(leader, other)
    run.go_on()


def _slow_network(cluster: World, run: Run) -> None:
    leader = cluster.leader()
    for other in cluster.others(leader):
        cluster.network.delay(leader, other, 0.1)
        cluster.network.delay(other, leader, 0.1)
    run.go_on()
    cluster.network.heal()


def _slow_disk(cluster: World, run: Run) -> None:
    leader = cluster.leader()
    cluster.set_slow(leader, _SLOW_S)
    run.go_on()
    cluster.set_slow(leader, 0)


def _roll(cluster: World, _: Run) -> None:
    for node in cluster.nodes.nodes:
        assert cluster.nodes.stop(node) == 0
        cluster.nodes.start([node])
        cluster.wait_whole()


_PROCESSES: Final[Mapping[str, Fault]] = {
    "leader killed": _kill_leader, "follower killed": _kill_follower, "controller's leader killed": _kill_controller,
    "all killed": _kill_all, "leader paused": _pause,
}  # fmt: skip
_AROUND: Final[Mapping[str, Fault]] = {
    "leader cut off": _part, "controller's leader mute": _mute_controller, "connections reset": _reset,
    "slow network": _slow_network, "slow disk": _slow_disk,
}  # fmt: skip
_ROLLING: Final[Mapping[str, Fault]] = {"rolling restart": _roll}
_ALL: Final = {**_PROCESSES, **_AROUND, **_ROLLING, "follower mute": _mute_follower}


def _through(directory: Path, clients: Sequence[type[Client]], faults: Sequence[Fault]) -> None:
    with world(directory) as cluster, running(cluster, clients) as run:
        for fault in faults:
            began = time.monotonic()
            fault(cluster, run)
            cluster.wait_whole()
            run.go_on()
            print(f"{fault.__name__}: {time.monotonic() - began:.1f} s")


@pytest.mark.long
def test_processes_end_and_stand_still(tmp_path: Path) -> None:
    _through(tmp_path, _CONFLUENT, list(_PROCESSES.values()))


@pytest.mark.long
def test_the_network_and_a_disk_fail(tmp_path: Path) -> None:
    _through(tmp_path, _CONFLUENT, list(_AROUND.values()))


@pytest.mark.long
def test_a_rolling_restart_disturbs_nobody(tmp_path: Path) -> None:
    _through(tmp_path, (Undisturbed, Undisturbed, Assigned, Watching), list(_ROLLING.values()))


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.long
def test_other_libraries(tmp_path: Path) -> None:
    clients = (KafkaPythonSender, KafkaPythonReader, AiokafkaSender, AiokafkaReader)
    _through(tmp_path, clients, [_kill_leader])


@pytest.mark.long
def test_transactions_and_groups(tmp_path: Path) -> None:
    _through(tmp_path, _COORDINATED, [_kill_leader, _kill_controller])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("name", _ALL)
def test_a_fault_again_and_again(tmp_path: Path, name: str) -> None:
    seed = int(os.environ.get("CLUSTER_SEED", "1"))
    chance = random.Random(f"{seed}/{name}")
    clients = (*_CONFLUENT, *_COORDINATED, KafkaPythonSender, AiokafkaReader)
    end_s = time.monotonic() + _LONG_S
    with world(tmp_path) as cluster, running(cluster, clients, seed) as run:
        while time.monotonic() < end_s:
            _ALL[name](cluster, run)
            run.go_on(chance.randrange(1, 50))


@pytest.mark.long
def test_a_leader_that_is_cut_off_serves_nothing_once_its_session_is_over(tmp_path: Path) -> None:
    with world(tmp_path) as cluster:
        leader = cluster.leader()
        node = cluster.nodes.nodes[leader]
        producer = Producer({"bootstrap.servers": node.kafka, "acks": "all"})
        producer.produce(TOPIC, b"before", partition=0)
        assert producer.flush(_WAIT_S) == 0
        with Asking(node) as asking:
            (known,) = asking.ask(ApiKey.METADATA, 12, {"topics": [{"topic_id": _NO_ID, "name": TOPIC}]})["topics"]

            def fetched() -> int:
                topics = [FetchTopic(known["topic_id"], [FetchPartition(0, 0, 1 << 20)])]
                request = FetchRequest(-1, 0, 1, 1 << 20, 0, 0, -1, topics)
                answer = asking.ask_bytes(ApiKey.FETCH, 16, encode_request(16, request))
                _, (partition,) = decode_response(16, *answer)
                return partition.error_code

            def listed() -> int:
                part = {"partition_index": 0, "timestamp": -1}
                wish = {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": [part]}]}
                (topic,) = asking.ask(ApiKey.LIST_OFFSETS, 1, wish)["topics"]
                return int(topic["partitions"][0]["error_code"])

            def coordinates(group: str) -> bool:
                found = asking.ask(ApiKey.FIND_COORDINATOR, 1, {"key": group, "key_type": 0})
                return bool(found["error_code"] == ErrorCode.NONE and found["node_id"] == leader)

            def committed() -> int:
                wish = {"group_id": group, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
                return int(asking.ask(ApiKey.OFFSET_FETCH, 2, wish)["error_code"])

            group = until(lambda: next(filter(coordinates, map(str, range(20))), ""), _WAIT_S)
            until(lambda: committed() == ErrorCode.NONE, _WAIT_S)
            assert (fetched(), listed()) == (ErrorCode.NONE, ErrorCode.NONE)
            cluster.network.part([leader], cluster.others(leader))
            refused = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR)
            until(lambda: (fetched(), listed(), committed()) == refused, _WAIT_S)
            assert metric(node, "duramen_partitions_under_replicated") > 0
            assert "this node is cut off" in unready(node)
            cluster.network.heal()
            cluster.wait_whole()
            until(lambda: metric(node, "duramen_partitions_under_replicated") == 0, _WAIT_S)


@pytest.mark.long
def test_a_leader_that_is_cut_off_says_so_long_before_a_request_is_given_up(tmp_path: Path) -> None:
    with world(tmp_path) as cluster:
        leader = cluster.leader()
        producer = untyped("kafka").KafkaProducer(
            bootstrap_servers=cluster.nodes.nodes[leader].kafka, acks="all", enable_idempotence=False, retries=0,
            request_timeout_ms=_LONG_MS, delivery_timeout_ms=2 * _LONG_MS,
        )  # fmt: skip
        producer.send(TOPIC, b"before", partition=0).get(_WAIT_S)
        cluster.network.part([leader], cluster.others(leader))
        sent = producer.send(TOPIC, b"behind", partition=0)
        with pytest.raises(untyped("kafka.errors").NotLeaderForPartitionError):
            sent.get(_WAIT_S)
        producer.close()
        cluster.network.heal()
        cluster.wait_whole()
