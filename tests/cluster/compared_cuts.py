"""The cuts of `test_cuts.py` on Duramen and on Apache Kafka: how many records each stores twice, and loses.

`unshare -n python -m tests.cluster.compared_cuts --peer kafka --rounds 5`; `--peer duramen` needs no `unshare`.
"""

import argparse
import contextlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.cluster.judged import NODES, PARTITIONS, TOPICS, Run, World, cut_and_kill, world
from tests.cluster.kafka_nodes import KafkaNetwork, KafkaNodes
from tests.consistency.checker import ALLOWED, check
from tests.consistency.clients import Copier, Pipelined, everything
from tests.leaks import close_leaked_sockets

_CLIENTS: Final = (Pipelined, Pipelined, Copier, Copier)


@contextlib.contextmanager
def _kafka(directory: Path) -> Iterator[World]:
    network: Any = KafkaNetwork(NODES)
    try:
        nodes: Any = KafkaNodes(directory, NODES)
        try:
            cluster = World(nodes, network)
            cluster.start()
            yield cluster
        finally:
            nodes.close()
    finally:
        network.close()


def _count(run: Run) -> dict[str, int]:
    """What is wrong, by kind, with how often."""
    run.end()
    last = len(run.clients)
    run.recorder.invoke(last, [])
    run.recorder.complete(last, "ok", everything(run.cluster.nodes.bootstrap_servers, PARTITIONS, TOPICS))
    history = run.recorder.history()
    counts = {kind: len(said) for kind, said in check(history).items() if kind not in ALLOWED}
    sent = sum(len(op.parts) for op in history if op.outcome == "ok" and op.process < last)
    return {"records acknowledged or polled": sent, **counts}


def main() -> int:
    """Run the rounds, and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=("duramen", "kafka"), default="duramen")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", default="1")
    wanted = parser.parse_args()
    chance, made = random.Random(wanted.seed), _kafka if wanted.peer == "kafka" else world
    with tempfile.TemporaryDirectory() as directory, made(Path(directory) / "nodes") as cluster:
        run = Run(cluster, _CLIENTS, 1)
        run.start()
        for number in range(wanted.rounds):
            began_s = time.monotonic()
            try:
                cut_and_kill(cluster, run, chance)
            except AssertionError as error:
                print(f"round {number}: {error}", flush=True)
                break
            print(f"round {number}: {time.monotonic() - began_s:.1f} s", flush=True)
        print(wanted.peer, _count(run))
        problems = [client.problem or f"{client.name} hangs" for client in run.clients if client.is_alive()]
        print(problems + [client.problem for client in run.clients if client.problem and not client.is_alive()])
    close_leaked_sockets()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a client that hangs would keep the process
