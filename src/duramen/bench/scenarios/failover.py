"""The time without acknowledgements after a leader is killed, paused or moved, for a client that retries at once.

Three nodes, one partition with a replica on each, acks=all. The client asks the nodes alternately without delay. A
library's backoff, initially 100 ms in librdkafka, adds to the result.
"""

import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from duramen.base.errors import DuramenError
from duramen.bench.load.prober import Prober, acknowledged_s, agreed
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.targets import TargetOutcome, at_most, not_measured
from duramen.client.http import HttpNode
from duramen.node.processes import NodeProcesses

__all__ = ["measure", "steps"]

_STREAM: Final = "failover"
_NODES: Final = (1, 2, 3)
_WHOLE_S: Final = 60.0
_WRITES: Final = 20
_CASES: Final = (
    ("leader killed with -9", "kill", False, 300.0),
    ("leader killed with -9 that led the controller too", "kill", True, 600.0),
    ("leader stands still (SIGSTOP)", "pause", False, 1000.0),
    ("leader moved on purpose", "move", False, 20.0),
)


def steps(rounds: int) -> int:
    """How many times a leader goes."""
    return rounds * len(_CASES)


def measure(directory: Path, worker: LoadWorker, *, rounds: int, scale: float) -> list[TargetOutcome]:
    """Let a leader go `rounds` times in each way; `scale` says nothing here."""
    del scale
    outcomes = []
    with NodeProcesses(directory / "failover", len(_NODES)) as nodes:
        for name, how, controls, wanted_ms in _CASES:
            found = []
            for _ in range(rounds):
                worker.say(name)
                taken_ms = _round(nodes, how, controls=controls)
                worker.step()
                if taken_ms is not None:
                    found.append(taken_ms)
            outcomes.append(_outcome(name, found, wanted_ms))
    return outcomes


def _outcome(name: str, found: Sequence[float], wanted_ms: float) -> TargetOutcome:
    if not found:
        return not_measured(name, f"at most {wanted_ms:g} ms", "no such round came about")
    ordered = sorted(found)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    spread = f"p50 {ordered[len(ordered) // 2]:.0f}, longest {ordered[-1]:.0f} of {len(ordered)}"
    return at_most(f"first acknowledgement: {name}", p99, wanted_ms, "ms", spread, "p99")


def _round(nodes: NodeProcesses, how: str, *, controls: bool) -> float | None:
    """Milliseconds until the first acknowledgement after a leader went; None where it could not be arranged."""
    clients = {number: Prober(nodes.nodes[number].kafka, _STREAM) for number in _NODES}
    gone: list[int] = []
    try:
        leader, controller = _whole(clients)
        if how != "move" and (leader == controller) != controls:
            # Let who is wanted lead; where that does not come about the round says nothing.
            other = controller if controls else next(number for number in _NODES if number != controller)
            _move(nodes, leader, other)
            leader, controller = _whole(clients)
            if (leader == controller) != controls:
                return None
        for _ in range(_WRITES):
            clients[leader].write()
        if how == "move":
            return _longest_gap_ms(nodes, clients, leader)
        began_s = time.monotonic()
        gone.append(leader)
        nodes.nodes[leader].signal(signal.SIGKILL if how == "kill" else signal.SIGSTOP)
        others = [clients[number] for number in _NODES if number != leader]
        return 1000 * acknowledged_s(others, 0, began_s, _WHOLE_S)
    finally:
        for client in clients.values():
            client.close()
        _mend(nodes, how, gone)


def _mend(nodes: NodeProcesses, how: str, gone: Sequence[int]) -> None:
    """Have those back that went."""
    for number in gone:
        if how == "pause":
            nodes.nodes[number].signal(signal.SIGCONT)
        else:
            nodes.nodes[number].wait()
            nodes.start([number])


def _move(nodes: NodeProcesses, asked: int, leader: int) -> None:
    body = {"partitions": [{"stream": _STREAM, "partition": 0}], "leader": leader}
    HttpNode(nodes.nodes[asked].http).post("/v1/cluster/elections", body)


def _longest_gap_ms(nodes: NodeProcesses, clients: dict[int, Prober], leader: int) -> float:
    """The longest time between two acknowledgements while another is made to lead."""
    other = next(number for number in _NODES if number != leader)
    with ThreadPoolExecutor(1) as threads:
        moving = threads.submit(_move, nodes, leader, other)
        last_s, longest_s = time.monotonic(), 0.0
        asked, left = leader, _WRITES
        while left:
            if clients[asked].write():
                now_s = time.monotonic()
                longest_s, last_s = max(longest_s, now_s - last_s), now_s
                left -= asked == other  # some more after it has moved
            else:
                asked = other if asked == leader else leader
        moving.result()
    return 1000 * longest_s


def _whole(clients: dict[int, Prober]) -> tuple[int, int]:
    """The leader and the controller's leader, once all are in sync and every node knows."""
    until_s = time.monotonic() + _WHOLE_S
    while time.monotonic() < until_s:
        if (layout := agreed(clients.values())) is not None:
            return layout.leaders[0], layout.controller
        time.sleep(0.05)
    raise DuramenError(f"the nodes are not all in sync after {_WHOLE_S:g} s")
