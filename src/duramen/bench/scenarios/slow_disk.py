"""Slow disks: many clients that share syncs, and a lone producer whose syncs the event loop makes."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from duramen.bench.contenders import Contender
from duramen.bench.load.closed_loop import ClosedLoopResult, fly
from duramen.bench.load.open_loop import pace
from duramen.bench.load.percentiles import Latencies
from duramen.bench.load.schedule import Schedule
from duramen.bench.load.worker import LoadWorker
from duramen.bench.ours import Ours
from duramen.bench.report.targets import Rounds, TargetOutcome, at_least, told
from duramen.bench.slow_node import SlowDisk, program

__all__ = ["measure", "steps"]

_DELAYS_MS: Final = (1.0, 5.0)
_CLIENTS: Final = 50
_RECORD_BYTES: Final = 256
_LOAD_S: Final = 3.0
_WARM_S: Final = 0.5
_WANTED: Final = 25.0
_ONE: Final = "one client"
_ALL: Final = f"{_CLIENTS} clients"

_LONE_HZ: Final = 50.0
_PROBE_HZ: Final = 200.0
_PROBE_BYTES: Final = 32
_LONE_S: Final = 10.0
_STALLING_S: Final = 200.0
_WARM: Final = Schedule(200.0, 0.7)  # more syncs than a node wants to see before it trusts the disk


def steps(rounds: int) -> int:
    """How many jobs there are."""
    return 2 * rounds * len(_DELAYS_MS) + 4


def measure(directory: Path, worker: LoadWorker, *, rounds: int, scale: float) -> list[TargetOutcome]:
    """One client and fifty in turns, each with one request in flight, and a producer at a low rate beside a probe."""
    disks = {f"takes {delay_ms:g} ms": (SlowDisk(delay_ms), _LONE_S) for delay_ms in (0.1, 1.0, 5.0)}
    disks["takes 0.1 ms and stalls 2 s once a minute"] = SlowDisk(0.1, 2.0 * scale, 60.0 * scale), _STALLING_S
    outcomes = [
        _lone(directory / f"lone-{at}", worker, name, disk, seconds * scale)
        for at, (name, (disk, seconds)) in enumerate(disks.items())
    ]
    for delay_ms in _DELAYS_MS:
        rates = Rounds()
        with Ours(directory / f"slow-{delay_ms:g}", nats=False, program=program(SlowDisk(delay_ms))) as ours:
            stream = ours.stream("slow", "sync", "kafka")
            for number in range(rounds):
                for name in (_ONE, _ALL) if number % 2 else (_ALL, _ONE):
                    rates.add(name, _rate_hz(worker, stream, name, delay_ms, scale))
        medians = rates.medians
        outcomes.append(
            at_least(
                f"{_ALL}, a sync takes {delay_ms:g} ms",
                rates.ratio(_ALL, _ONE),
                _WANTED,
                _ONE,
                f"{medians[_ALL]:,.0f} acknowledged/s, one {medians[_ONE]:,.0f}",
            )
        )
    return outcomes


def _lone(directory: Path, worker: LoadWorker, name: str, disk: SlowDisk, seconds: float) -> TargetOutcome:
    """A producer of single records at a low rate; beside it a probe that waits for no disk feels the event loop's."""
    with (
        Ours(directory, nats=False, program=program(disk)) as ours,
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as probes,
    ):
        lone, probe = ours.stream("lone", "sync", "kafka"), ours.stream("probe", "memory", "kafka")
        probing = probes.submit(
            pace, probe, _PROBE_BYTES, Schedule(_PROBE_HZ, _WARM.duration_s), Schedule(_PROBE_HZ, seconds)
        )
        what = f"{_LONE_HZ:g} records a second, a sync {name}"
        found = Latencies(worker.run(what, pace, lone, _RECORD_BYTES, _WARM, Schedule(_LONE_HZ, seconds)))
        felt = Latencies(probing.result())
    return told(
        f"{what}: p50 / p99 / longest, and of a probe that waits for no disk", f"{_shown(found)}; {_shown(felt)}"
    )


def _shown(found: Latencies) -> str:
    figures = [found.at_ms(50), found.at_ms(99), found.max_ms]
    return " / ".join("-" if one is None else f"{one:.2f}" if one < 100 else f"{one:.0f}" for one in figures) + " ms"


def _rate_hz(worker: LoadWorker, stream: Contender, name: str, delay_ms: float, scale: float) -> float:
    found: ClosedLoopResult = worker.run(
        f"{name}, {delay_ms:g} ms a sync", fly, stream, _RECORD_BYTES,
        connections=_CLIENTS if name == _ALL else 1, warm_s=_WARM_S * scale, duration_s=_LOAD_S * scale,
    )  # fmt: skip
    return found.rate_hz
