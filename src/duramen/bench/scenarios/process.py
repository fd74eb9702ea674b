"""The broker's process: start time, memory, CPU time per million records."""

import http.client
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

import psutil

from duramen.base.errors import ServerUnreachable
from duramen.base.units import MIB
from duramen.bench.load import librdkafka
from duramen.bench.load.worker import LoadWorker
from duramen.bench.ours import Ours
from duramen.bench.report.targets import TargetOutcome, at_most
from duramen.bench.scenarios.effort import Effort
from duramen.bench.system import cpu_s

__all__ = ["measure", "steps"]

_RECORD_BYTES: Final = 100
_READY_S: Final = 0.6
_READY_WITH_NATS_S: Final = 1.0
_IDLE_MIB: Final = 80.0
_USED_MIB: Final = 250.0
_CPU_S: Final = 0.4
_SETTLE_S: Final = 2.0
_CPU_ROUNDS: Final = 3


def steps(effort: Effort) -> int:
    """How many jobs there are."""
    return 2 * effort.starts + 2 * _CPU_ROUNDS


def measure(directory: Path, worker: LoadWorker, effort: Effort) -> list[TargetOutcome]:
    """Start-up with and without NATS, memory, CPU; each on nodes of its own."""
    with tempfile.TemporaryDirectory(dir=directory, ignore_cleanup_errors=True) as own:
        ready = _starts(Path(own) / "bare", worker, effort, nats=False)
        ready_with_nats = _starts(Path(own) / "nats", worker, effort, nats=True)
        return [
            at_most("ready without NATS", median(ready), _READY_S, "s", _spread(ready)),
            at_most("ready with NATS", median(ready_with_nats), _READY_WITH_NATS_S, "s", _spread(ready_with_nats)),
            *_use(Path(own) / "used", worker, effort),
        ]


def _spread(found: list[float]) -> str:
    return f"{min(found):.2f}-{max(found):.2f} of {len(found)} starts"


def _starts(directory: Path, worker: LoadWorker, effort: Effort, *, nats: bool) -> list[float]:
    """Seconds from the start of the process until /readyz says yes."""
    found = []
    for number in range(effort.starts):
        worker.say(f"starting a node {'with' if nats else 'without'} NATS")
        ours = Ours(directory / str(number), nats=nats)
        began_s = time.monotonic()
        with ours:
            _check_ready(ours.process.http)
            found.append(time.monotonic() - began_s)
        worker.step()
    return found


def _check_ready(address: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request("GET", "/readyz")
        status = connection.getresponse().status
    finally:
        connection.close()
    if status != http.HTTPStatus.OK:
        raise ServerUnreachable(f"the node at {address} said that it is ready, and /readyz answers {status}")


def _use(directory: Path, worker: LoadWorker, effort: Effort) -> list[TargetOutcome]:
    cpu_in_s, cpu_out_s = [], []
    with Ours(directory, nats=True) as ours:
        process = psutil.Process(ours.process.pid)
        worker.say("waiting a little: memory of an idle node")
        time.sleep(_SETTLE_S)
        idle_mib = process.memory_info().rss / MIB
        records = effort.memory_records // _CPU_ROUNDS
        for number in range(_CPU_ROUNDS):
            stream = ours.stream(f"use-{number}", "sync", "kafka")
            before_s = cpu_s(process.pid)
            worker.run(f"{records:,} records in", librdkafka.publish, stream, _RECORD_BYTES, records)
            between_s = cpu_s(process.pid)
            worker.run(f"{records:,} records out", librdkafka.subscribe, stream, records)
            cpu_in_s.append((between_s - before_s) * 1e6 / records)
            cpu_out_s.append((cpu_s(process.pid) - between_s) * 1e6 / records)
        used_mib = process.memory_info().rss / MIB
    both_s = median(cpu_in_s) + median(cpu_out_s)
    figures = f"{median(cpu_in_s):.2f} in, {median(cpu_out_s):.2f} out"
    return [
        at_most("memory of the idle broker", idle_mib, _IDLE_MIB, "MiB"),
        at_most(f"memory after {effort.memory_records:,} records in and out", used_mib, _USED_MIB, "MiB"),
        at_most("broker CPU for a million records of 100 B, in and out", both_s, _CPU_S, "s", figures),
    ]
