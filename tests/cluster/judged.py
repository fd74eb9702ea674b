"""A cluster of real nodes under unmodified clients that write down what they are told, and the judgement of that."""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import unready, until
from tests.cluster import slow_node
from tests.cluster.proxy import Network
from tests.consistency.checker import faults
from tests.consistency.clients import COPIED, TOPIC, Client, everything
from tests.consistency.history import Op, Recorder

from duramen.node.processes import NodeProcesses

__all__ = ["PARTITIONS", "Layout", "Run", "World", "cut_and_kill", "running", "world"]

NODES: Final = (1, 2, 3)
PARTITIONS: Final = 3
TOPICS: Final = (TOPIC, COPIED)
_WAIT_S: Final = 120.0
_ANSWER_S: Final = 10.0
_LOG_CHARACTERS: Final = 6000
_CUT_S: Final = 6.0
"""Longer than a session with the controller, and as long as `replica.lag.time.max.ms` allows in these tests."""
_ADMIN: Final[Mapping[str, str | int]] = {"log_level": 0, "socket.timeout.ms": 10_000}


class Layout(NamedTuple):
    """One partition as a node tells of it; a leader of -1 is none."""

    leader: int
    in_sync: frozenset[int]


class World:
    """Three nodes, the network between them, and a stream on all of them."""

    def __init__(self, nodes: NodeProcesses, network: Network) -> None:
        self.nodes = nodes
        self.network = network

    def start(self) -> None:
        """Start the nodes, and create the stream."""
        self.nodes.start()
        admin = AdminClient({**_ADMIN, "bootstrap.servers": self.nodes.bootstrap_servers})
        wishes = [NewTopic(name, PARTITIONS, len(NODES), config={"min.insync.replicas": "2"}) for name in TOPICS]
        for created in admin.create_topics(wishes).values():
            created.result(_WAIT_S)
        self.wait_whole()

    # -- what the nodes tell ------------------------------------------------------------------------

    def layouts(self, node: int) -> dict[int, Layout]:
        """The partitions of the stream as that node tells of them; nothing where it does not."""
        admin = AdminClient({**_ADMIN, "bootstrap.servers": self.nodes.nodes[node].kafka})
        try:
            found = admin.list_topics(TOPIC, timeout=_ANSWER_S).topics[TOPIC].partitions
        except KafkaException:
            return {}
        return {number: Layout(one.leader, frozenset(one.isrs)) for number, one in found.items()}

    def controller(self) -> int:
        """The node that leads the quorum, as the logs say."""
        admin = AdminClient({**_ADMIN, "bootstrap.servers": self.nodes.bootstrap_servers})
        return until(lambda: max(admin.list_topics(TOPIC, timeout=_ANSWER_S).controller_id, 0), _WAIT_S)

    def leader(self, partition: int = 0) -> int:
        """The leader of a partition, when nothing is wrong."""
        return self.wait_whole()[partition].leader

    def others(self, *nodes: int) -> list[int]:
        """All nodes but these."""
        return [number for number in NODES if number not in nodes]

    def wait_layout(self, node: int, wanted: Callable[[Layout], bool]) -> dict[int, Layout]:
        """Wait until that node tells such things of every partition."""

        def found() -> dict[int, Layout]:
            layouts = self.layouts(node)
            return layouts if layouts and all(map(wanted, layouts.values())) else {}

        return until(found, _WAIT_S)

    def wait_without(self, node: int) -> None:
        """Wait until the others go on without that node, which they neither follow nor wait for."""
        for other in self.others(node):
            self.wait_layout(other, lambda one: one.leader not in (-1, node) and node not in one.in_sync)

    def wait_whole(self) -> dict[int, Layout]:
        """Wait until every node tells that each partition has a leader and all of its replicas are in sync."""
        layouts: dict[int, Layout] = {}
        for number in NODES:
            layouts = self.wait_layout(number, lambda one: one.leader != -1 and one.in_sync == frozenset(NODES))
        return layouts

    # -- what is done to them -----------------------------------------------------------------------

    def set_slow(self, node: int, seconds: float) -> None:
        """Let each sync of a node's disk take so long."""
        slow_node.set_slow(self.nodes.nodes[node].data_dir, seconds)

    def set_fault(self, node: int, fault: str) -> None:
        """Let a node's disk fail so: see `faulty_disk`; empty: not any more."""
        slow_node.set_fault(self.nodes.nodes[node].data_dir, fault)

    def unready(self, node: int) -> str:
        """Why a node is not ready; empty where it is."""
        return unready(self.nodes.nodes[node])

    def check_logs(self) -> None:
        """No node has said what none ever should."""
        for number, log in self.nodes.logs().items():
            assert "Traceback" not in log, f"node {number}: {log[log.index('Traceback') :][:_LOG_CHARACTERS]}"


@contextlib.contextmanager
def world(directory: Path) -> Iterator[World]:
    """A cluster that ends with the block; its logs are shown where that fails."""
    with Network() as network:
        programs = dict.fromkeys(NODES, slow_node.PROGRAM)
        nodes = NodeProcesses(directory, len(NODES), reached=network.reach, programs=programs)
        try:
            made = World(nodes, network)
            made.start()
            yield made
            made.check_logs()
        except BaseException:
            for number, log in nodes.logs().items():
                print(f"--- node {number}\n{log[-_LOG_CHARACTERS:]}")
            raise
        finally:
            nodes.kill(*nodes.running)
            nodes.close()


class Run:
    """Clients at work on a cluster."""

    def __init__(self, cluster: World, processes: Sequence[type[Client]], seed: int) -> None:
        self.cluster = cluster
        self.recorder = Recorder()
        self.clients = [
            make(number, cluster.nodes.bootstrap_servers, PARTITIONS, self.recorder, seed)
            for number, make in enumerate(processes)
        ]

    def start(self) -> None:
        """Let them begin, and wait until each has done something."""
        for client in self.clients:
            client.start()
        self.go_on()

    def go_on(self, count: int = 3) -> None:
        """Wait until each that sends or polls has done that so many times more, or has had to give up."""
        before = self._done()
        try:
            until(lambda: not self._behind(before, count) or self._problems(), _WAIT_S)
        except AssertionError:
            raise AssertionError(
                f"within {_WAIT_S:g} s these have not gone on: {self._behind(before, count)}"
            ) from None

    def _behind(self, before: Mapping[int, int], count: int) -> list[str]:
        """Who has not done so much since, and what it has done."""
        now = self._done()
        done = {client.name: now[client.process] - before[client.process] for client in self._recording()}
        return [f"{name}: {times} of {count}" for name, times in done.items() if times < count]

    def _recording(self) -> list[Client]:
        return [client for client in self.clients if client.records]

    def _done(self) -> dict[int, int]:
        done = dict.fromkeys(range(len(self.clients)), 0)
        for op in self.recorder.history():
            if op.outcome == "ok" and op.parts:
                done[op.process] += 1
        return done

    def _problems(self) -> list[str]:
        return [client.problem for client in self.clients if client.problem]

    def end(self) -> None:
        """Tell them to end, and wait until they have."""
        for client in self.clients:
            client.stopping.set()
        for client in self.clients:
            client.join(_WAIT_S)

    def judge(self) -> list[Op]:
        """The history, with everything read in its end. Raises AssertionError for what is wrong with it."""
        assert [client.name for client in self.clients if client.is_alive()] == []
        assert self._problems() == []
        last = len(self.clients)
        self.recorder.invoke(last, [])
        stored = everything(self.cluster.nodes.bootstrap_servers, PARTITIONS, TOPICS)
        self.recorder.complete(last, "ok", stored)
        for client in self.clients:
            client.check(stored)
        history = self.recorder.history()
        found = faults(history)
        assert not found, {kind: said[:10] for kind, said in found.items()}
        return history


@contextlib.contextmanager
def running(cluster: World, processes: Sequence[type[Client]], seed: int = 1) -> Iterator[Run]:
    """Clients that run for as long as the block; then the cluster becomes whole, they go on, and all is judged."""
    run = Run(cluster, processes, seed)
    run.start()
    try:
        yield run
        cluster.wait_whole()
        run.go_on()
    finally:
        run.end()
    history = run.judge()
    counts = {kind: sum(op.outcome == kind and bool(op.parts) for op in history) for kind in ("ok", "fail", "info")}
    print(f"\nseed {seed}: {counts}")


def cut_and_kill(cluster: World, run: Run, chance: random.Random) -> None:
    """Cut off a leader from the other nodes, and kill one of those while the network heals."""
    leader = cluster.leader(chance.randrange(PARTITIONS))
    killed = chance.choice(cluster.others(leader))
    cluster.network.part([leader], cluster.others(leader))
    threading.Event().wait(_CUT_S)
    cluster.network.heal()
    threading.Event().wait(chance.choice((0, 0.05, 0.3, 1)))
    cluster.nodes.kill(killed)
    run.go_on(1)
    cluster.nodes.start([killed])
    cluster.wait_whole()
    run.go_on()
