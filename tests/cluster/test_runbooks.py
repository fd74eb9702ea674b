"""The runbooks of docs/operations.md with three real nodes: a backup of all, a lost node, a lost majority."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.cli.command import run
from tests.clients import until

import duramen
from duramen.node.process import NodeProcess, hold_port
from duramen.node.processes import NodeProcesses

_WAIT_S: Final = 60.0
_RECORDS: Final = 300
_GROUP: Final = "readers"
_EVERYWHERE: Final = {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}


class Operator:
    """Three nodes, and somebody who follows a page."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nodes = NodeProcesses(directory, 3, _EVERYWHERE)
        self.others: list[NodeProcess] = []
        self.ending = contextlib.ExitStack()

    def duramen(self, *words: str, server: str = "") -> str:
        """What a command says that does what it is to."""
        ended = run(*words, server=server or self.nodes.nodes[self.nodes.running[0]].http)
        assert ended.code == 0, ended.err + ended.out
        return ended.out

    def fill(self) -> None:
        """A stream, and a group that has read it."""
        self.duramen("stream", "create", "orders", "--partitions", "2")
        with duramen.connect(self.nodes.nodes[1].http) as client:
            client.produce("orders", [b"%d" % number for number in range(_RECORDS)])
            assert sum(len(batch) for batch in client.consume("orders", group=_GROUP, idle_s=1)) == _RECORDS
        self.settle()

    def settle(self, server: str = "") -> None:
        until(lambda: "0 without a leader, 0 under-replicated, 0 being moved" in self.duramen(
            "cluster", "status", server=server), _WAIT_S)  # fmt: skip

    def has_all(self, server: str) -> None:
        """Each record is there once, and the group has nothing to read again."""
        with duramen.connect(server) as client:
            read = [record.value or b"" for batch in client.consume("orders", idle_s=1) for record in batch]
            again = sum(len(batch) for batch in client.consume("orders", group=_GROUP, idle_s=1))
        assert (sorted(read), again) == (sorted(b"%d" % number for number in range(_RECORDS)), 0)

    def node(self, node_id: int, directory: Path, seed: str = "") -> NodeProcess:
        """A node on ports of its own, in a cluster that has `seed`, or itself, as its only seed."""
        held = hold_port()
        self.ending.callback(held.close)
        listen = f"127.0.0.1:{held.getsockname()[1]}"
        made = NodeProcess(directory, _EVERYWHERE | {
            "node.id": node_id, "cluster.listen": listen, "cluster.seeds": seed or listen,
            "cluster.secret.file": str(self.directory / "secret"),
        })  # fmt: skip
        self.ending.callback(lambda: made.kill() if made.running else None)
        self.others.append(made)
        self.seed = seed or listen
        return made.start()


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    made = Operator(tmp_path)
    with made.ending, made.nodes:
        made.fill()
        yield made


@pytest.mark.long
def test_a_backup_of_all_nodes(operator: Operator) -> None:
    nodes = operator.nodes
    for number, node in nodes.nodes.items():
        assert node.stop() == 0
        shutil.copytree(node.data_dir, operator.directory / f"backup{number}")
    nodes.start()
    operator.duramen("stream", "delete", "orders", "--yes")
    for number, node in nodes.nodes.items():
        assert node.stop() == 0
        shutil.rmtree(node.data_dir)
        (operator.directory / f"backup{number}").rename(node.data_dir)
    nodes.start()
    operator.settle()
    operator.has_all(nodes.nodes[2].http)


@pytest.mark.long
def test_a_lost_node_whose_place_another_takes(operator: Operator) -> None:
    nodes = operator.nodes
    nodes.kill(3)
    until(lambda: "fenced" in operator.duramen("cluster", "status"), _WAIT_S)
    fourth = operator.node(4, operator.directory / "node4", nodes.cluster[1])
    operator.duramen("cluster", "add", "4")
    operator.duramen("cluster", "rebalance", "--without", "3", "--yes")
    operator.duramen("cluster", "remove", "3", "--yes")
    operator.settle()
    operator.has_all(fourth.http)


@pytest.mark.long
def test_a_lost_majority(operator: Operator) -> None:
    nodes = operator.nodes
    nodes.kill(1, 2)
    assert nodes.nodes[3].stop() == 0
    ended = run("log", "salvage", str(nodes.nodes[3].data_dir), str(operator.directory / "new3"))
    assert (ended.code, "Nothing is lost." in ended.out) == (0, True), ended.out + ended.err
    third = operator.node(3, operator.directory / "new3")
    operator.has_all(third.http)
    for number in (1, 2):
        operator.node(number, operator.directory / f"new{number}", operator.seed)
        operator.duramen("cluster", "add", str(number), server=third.http)
    for stream in ("orders", "__consumer_offsets"):
        operator.duramen("cluster", "reassign", stream, "--replication-factor", "3", server=third.http)
    operator.settle(third.http)
    assert third.stop() == 0
    operator.has_all(operator.others[-1].http)
