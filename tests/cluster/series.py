"""Faults of a real cluster, many times each: the time to the first acknowledgement, and nothing lost or doubled.

`python -m tests.cluster.series` runs them all; `--only KIND` one kind, `--rounds N` so many of each. Unmodified clients
are at work meanwhile, and what they were told is judged at the end of each kind.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import until
from tests.cluster.clients import Watching
from tests.cluster.faulty_disk import BROKEN, FULL
from tests.cluster.judged import NODES, PARTITIONS, World, running, world
from tests.consistency.clients import Assigned, PlainSender
from tests.leaks import close_leaked_sockets

from duramen.bench.load.prober import Prober, acknowledged_s, agreed

_STREAM: Final = "probed"
_CLIENTS: Final = (PlainSender, PlainSender, Assigned, Watching)
_WAIT_S: Final = 120.0
_LIMIT_S: Final = 60.0
_WARM_UP: Final = 20


class Kind(NamedTuple):
    """`strike` hits a node and `mend` undoes it; `controls` wants the node that leads the controllers' quorum."""

    rounds: int
    strike: Callable[[World, int], None]
    mend: Callable[[World, int], None]
    controls: bool = False


def _kill(cluster: World, node: int) -> None:
    cluster.nodes.kill(node)


def _start(cluster: World, node: int) -> None:
    cluster.nodes.start([node])


def _break(cluster: World, node: int) -> None:
    cluster.set_fault(node, BROKEN)


def _replace(cluster: World, node: int) -> None:
    cluster.set_fault(node, "")
    cluster.nodes.kill(node)
    cluster.nodes.start([node])


def _fill(cluster: World, node: int) -> None:
    cluster.set_fault(node, FULL)


def _empty(cluster: World, node: int) -> None:
    cluster.set_fault(node, "")


def _cut(cluster: World, node: int) -> None:
    cluster.network.part([node], cluster.others(node))


def _mute(cluster: World, node: int) -> None:
    """The others hear nothing of it any more."""
    for other in cluster.others(node):
        cluster.network.cut(node, other)


def _heal(cluster: World, _: int) -> None:
    cluster.network.heal()


def _start_without(cluster: World, node: int) -> None:
    cluster.nodes.kill(*NODES)
    cluster.nodes.start(cluster.others(node))


KINDS: Final[Mapping[str, Kind]] = {
    "leader killed": Kind(30, _kill, _start),
    "controller killed": Kind(10, _kill, _start, controls=True),
    "disk failed": Kind(10, _break, _replace),
    "disk full": Kind(10, _fill, _empty),
    "cut off": Kind(10, _cut, _heal),
    "cut one way": Kind(10, _mute, _heal),
    "cold start with one missing": Kind(10, _start_without, _start),
}


def _round(cluster: World, kind: Kind, number: int) -> float:
    """Seconds until another node acknowledges a record of a partition that the struck node led."""
    probers = {node: Prober(cluster.nodes.nodes[node].kafka, _STREAM) for node in NODES}
    layout = until(lambda: agreed(probers.values()), _WAIT_S)
    assert layout is not None
    struck = layout.controller if kind.controls else layout.leaders[number % PARTITIONS]
    partition = next((at for at, leader in layout.leaders.items() if leader == struck), 0)
    try:
        for _ in range(_WARM_UP):
            until(lambda: any(prober.write(partition) for prober in probers.values()), _WAIT_S)
        began_s = time.monotonic()
        kind.strike(cluster, struck)
        return acknowledged_s((probers[other] for other in cluster.others(struck)), partition, began_s, _LIMIT_S)
    finally:
        for prober in probers.values():
            prober.close()
        kind.mend(cluster, struck)
        cluster.wait_whole()


def run(kind: Kind, rounds: int, directory: Path) -> list[float]:
    """The times of so many rounds, in seconds. Raises AssertionError where something is lost or doubled."""
    found: list[float] = []
    with world(directory) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.nodes.bootstrap_servers, "log_level": 0})
        topic = NewTopic(_STREAM, PARTITIONS, len(NODES), config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[_STREAM].result(_WAIT_S)
        with running(cluster, _CLIENTS) as clients:
            for number in range(rounds):
                found.append(_round(cluster, kind, number))
                clients.go_on()
                print(f"{number + 1}/{rounds}: {found[-1]:.3f} s", file=sys.stderr, flush=True)
    return found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.series", description=__doc__)
    parser.add_argument("--only", choices=list(KINDS), help="one kind of fault (default: all)")
    parser.add_argument("--rounds", type=int, help="rounds of each kind (default: 30 of killed leaders, 10 of others)")
    given = parser.parse_args()
    print("| fault | rounds | p50, s | max, s |\n|---|---|---|---|")
    for name, kind in KINDS.items():
        if given.only in (None, name):
            with tempfile.TemporaryDirectory() as directory:
                times = run(kind, given.rounds or kind.rounds, Path(directory))
            close_leaked_sockets()
            print(f"| {name} | {len(times)} | {statistics.median(times):.2f} | {max(times):.2f} |", flush=True)


if __name__ == "__main__":
    main()
