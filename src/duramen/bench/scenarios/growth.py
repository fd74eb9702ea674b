"""A node that joins a cluster and copies existing replicas: its speed, and the effect on producers."""

import math
import os
import time
from pathlib import Path
from statistics import median
from typing import Final

from duramen.base.errors import DuramenError, RequestTimedOut
from duramen.base.units import MIB
from duramen.bench.bare import write_throughput
from duramen.bench.contenders import Contender
from duramen.bench.file_copy import PlainCopy
from duramen.bench.load.closed_loop import fly
from duramen.bench.load.open_loop import pace
from duramen.bench.load.percentiles import Latencies
from duramen.bench.load.schedule import Schedule
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.targets import TargetOutcome, at_most, not_measured, told
from duramen.bench.several import NODES, Several
from duramen.client.cluster import RetryPatience
from duramen.storage.log.log import LOGS_DIRECTORY

__all__ = ["measure", "steps"]

_MIB_IN_ALL: Final = 10_240
_STREAMS: Final = 6
_VALUE_BYTES: Final = 512 * 1024
_BARE_WRITES: Final = 512
_SMALL_BYTES: Final = 1024
_RATE_HZ: Final = 200.0
_PACED_S: Final = 5.0
_WARM_S: Final = 0.5
_WANTED: Final = 1.5
_NEW: Final = 4
_PATIENCE_S: Final = 3600.0
_REASSIGNMENTS: Final = "/v1/cluster/reassignments"
_REMOVED_SOON: Final = {"file.delete.delay.ms": "1000"}  # before the plain copies
_PLAIN: Final = ("a plain copy of the same files, as fast as that", "a plain copy, as fast as it goes")


def steps(rounds: int) -> int:
    """How many jobs there are, but for those while it copies."""
    return _STREAMS + 3 + 2 * rounds


def measure(
    directory: Path, worker: LoadWorker, *, rounds: int, scale: float, joined: Path | None = None
) -> list[TargetOutcome]:
    """Streams of 10 GB with two replicas, one of which the new node takes over; `scale` makes it less.

    The new node's data lies in `joined`, else beside the others'.
    """
    messages = max(1, int(_MIB_IN_ALL * scale) * MIB // _VALUE_BYTES // _STREAMS)
    size = messages * _STREAMS * _VALUE_BYTES
    nodes = directory / "growing"
    with Several(nodes) as several:
        replicas = {}
        for number in range(_STREAMS):
            leader, follower = NODES[number % len(NODES)], NODES[(number + 1) % len(NODES)]
            stream = several.stream(f"filled{number}", (leader, follower), _REMOVED_SOON)
            replicas[stream.stream] = [leader, _NEW]
            worker.run(
                f"writing {messages * _VALUE_BYTES // MIB:,} MiB", fly, stream, _VALUE_BYTES, in_flight=4, warm_s=0.0,
                messages=messages,
            )  # fmt: skip
        # Else the system is still writing what was filled in, and that is taken for usual.
        worker.run("the disk writes what waits", os.sync)
        bare_s = worker.run(
            "a bare file", write_throughput, directory, _VALUE_BYTES, min(_BARE_WRITES, messages), sync=True
        )
        live = several.stream("live", NODES)  # made before the filling it may have another leader by now
        alone_ms = [_paced(worker, live) for _ in range(rounds)]
        held = _logs(nodes)
        place = several.join(_NEW, joined)
        seconds, beside_ms = _copy(several, worker, live, replicas)
        alone_ms += [_paced(worker, live) for _ in range(rounds)]  # a machine is not as quick at all times
        worker.run("what was taken over is removed", _wait_until_gone, nodes, held)
        plain = [_copy_plainly(place, bytes_per_s, worker, live) for bytes_per_s in (size / seconds, math.inf)]
    rate, bare = size / seconds / MIB, min(_BARE_WRITES, messages) * _VALUE_BYTES / bare_s / MIB
    figures = f"{size / MIB:,.0f} MiB in {seconds:.1f} s; one file written and synced bare: {bare:,.0f} MiB/s"
    return [
        told("what a new node copies a second", f"{rate:,.0f} MiB/s ({figures})"),
        _slower(alone_ms, beside_ms),
        *(
            told(name, _felt(size / took_s / MIB, felt_ms, alone_ms))
            for name, (took_s, felt_ms) in zip(_PLAIN, plain, strict=True)
        ),
    ]


def _copy(
    several: Several, worker: LoadWorker, live: Contender, replicas: dict[str, list[int]]
) -> tuple[float, list[float | None]]:
    """Seconds until the new node has everything, and the p99 of producers meanwhile. Raises DuramenError."""
    server = several.server(NODES[0])
    began_s = time.monotonic()
    moves = [{"stream": name, "partition": 0, "replicas": wanted} for name, wanted in replicas.items()]
    answer = server.post(_REASSIGNMENTS, {"partitions": moves})
    refused = next((one for one in answer["partitions"] if one.get("error")), None)
    if refused is not None:
        raise DuramenError(f"{refused['stream']} is not given to node {_NEW}: {refused['detail']}")
    beside_ms: list[float | None] = []
    ended_s = None
    while ended_s is None:
        beside_ms.append(_paced(worker, live))
        if not server.get(_REASSIGNMENTS)["reassignments"]:
            ended_s = time.monotonic()
        elif time.monotonic() - began_s > _PATIENCE_S:
            raise DuramenError(f"node {_NEW} has not caught up after {_PATIENCE_S:g} s")
    return ended_s - began_s, beside_ms


def _copy_plainly(
    place: Path, bytes_per_s: float, worker: LoadWorker, live: Contender
) -> tuple[float, list[float | None]]:
    """Seconds that a plain copy of the new node's logs takes, and the p99 of producers meanwhile. Raises OSError."""
    felt_ms: list[float | None] = []
    with PlainCopy(sorted(place.rglob("*.log")), place, bytes_per_s) as copy:
        while copy.running:
            felt_ms.append(_paced(worker, live))
    return copy.seconds, felt_ms


def _logs(directory: Path) -> set[Path]:
    return set(directory.glob(f"node*/{LOGS_DIRECTORY}/*"))


def _wait_until_gone(directory: Path, held: set[Path]) -> None:
    """Wait until replicas that the new node has taken over are removed, which is felt too. Raises RequestTimedOut."""
    patience = RetryPatience(_PATIENCE_S)
    while len(held - _logs(directory)) < _STREAMS:
        patience.pause(RequestTimedOut(f"replicas that were taken over are still in {directory}"))
    os.sync()


def _slower(alone_ms: list[float | None], beside_ms: list[float | None]) -> TargetOutcome:
    target = f"p99 of {_RATE_HZ:g} records a second while a new node copies"
    alone, beside = _middle(alone_ms), _middle(beside_ms)
    if alone is None or beside is None:
        return not_measured(target, f"at most {_WANTED:g} x", "the samples are too few")
    return at_most(target, beside / alone, _WANTED, "x", f"{beside:.2f} ms, alone {alone:.2f} ms", "without it")


def _felt(rate: float, felt_ms: list[float | None], alone_ms: list[float | None]) -> str:
    alone, felt = _middle(alone_ms), _middle(felt_ms)
    p99 = "" if alone is None or felt is None else f", p99 of producers {felt:.2f} ms, {felt / alone:.2f} x"
    return f"{rate:,.0f} MiB/s{p99}"


def _middle(figures_ms: list[float | None]) -> float | None:
    found = [one for one in figures_ms if one is not None]
    return median(found) if found else None


def _paced(worker: LoadWorker, stream: Contender) -> float | None:
    warm, schedule = Schedule(_RATE_HZ, _WARM_S), Schedule(_RATE_HZ, _PACED_S)
    took_us = worker.run(f"{_RATE_HZ:g} records a second", pace, stream, _SMALL_BYTES, warm, schedule)
    return Latencies(took_us).at_ms(99.0)
