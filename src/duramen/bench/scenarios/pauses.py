"""Pauses of the node under load: the latency of a probe without disk access, and garbage collections."""

import http.client
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from duramen.base.errors import ServerUnreachable
from duramen.bench.load.closed_loop import ClosedLoopResult, fly
from duramen.bench.load.open_loop import pace
from duramen.bench.load.percentiles import Latencies
from duramen.bench.load.schedule import Schedule
from duramen.bench.load.worker import LoadWorker
from duramen.bench.ours import Ours
from duramen.bench.report.targets import TargetOutcome, at_most

__all__ = ["measure", "steps"]

_LOGS: Final = 1000
_A_REQUEST: Final = 100
_RECORD_BYTES: Final = 256
_PROBE_BYTES: Final = 32
_PROBE_HZ: Final = 200.0
_WARM_S: Final = 1.0
_TIMEOUT_S: Final = 30.0
_WANTED_MS: Final = 200.0
_WANTED_GC_MS: Final = 20.0


def steps() -> int:
    """How many jobs there are."""
    return 1


def measure(directory: Path, worker: LoadWorker, *, duration_s: float) -> list[TargetOutcome]:
    """Small batches to a thousand logs for so long, as fast as they are acknowledged; beside them a probe."""
    partitions = [range(first, first + _A_REQUEST) for first in range(0, _LOGS, _A_REQUEST)]
    with (
        Ours(directory / "pauses", nats=False) as ours,
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as loads,
    ):
        logs, probe = ours.stream("load", "sync", "kafka", _LOGS), ours.stream("probe", "memory", "kafka")
        loading = loads.submit(
            fly, logs, _RECORD_BYTES, connections=len(partitions), partitions=partitions, warm_s=0.0,
            duration_s=duration_s + _WARM_S,
        )  # fmt: skip
        warm, schedule = Schedule(_PROBE_HZ, _WARM_S), Schedule(_PROBE_HZ, duration_s)
        found = Latencies(worker.run(f"a load of {duration_s:g} s", pace, probe, _PROBE_BYTES, warm, schedule))
        load: ClosedLoopResult = loading.result()
        metrics = dict(_metrics(ours.process.http))
        ours.process.kill()  # stopping in order would sync all of it, to be thrown away
    p99_ms = found.at_ms(99.0)
    figures = f"p99 {p99_ms:.1f}, " if p99_ms is not None else ""
    figures += f"{found.count:,} probes; {load.rate_hz * _A_REQUEST:,.0f} batches/s"
    collections = metrics["duramen_gc_pause_seconds_count"]
    share = metrics["duramen_gc_pause_seconds_sum"] / duration_s
    return [
        at_most("longest wait of a probe", found.max_ms, _WANTED_MS, "ms", figures),
        at_most(
            "longest garbage collection", 1000 * metrics["duramen_gc_pause_longest_seconds"], _WANTED_GC_MS, "ms",
            f"{collections:,.0f} of them, {share:.2%} of the time",
        ),
        at_most(
            "longest delay of the event loop, five samples a second",
            1000 * metrics["duramen_event_loop_delay_longest_seconds"], _WANTED_MS, "ms",
        ),
    ]  # fmt: skip


def _metrics(address: str) -> Iterator[tuple[str, float]]:
    connection = http.client.HTTPConnection(address, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException) as error:
        raise ServerUnreachable(f"the node at {address} does not answer: {error}") from None
    finally:
        connection.close()
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name and not line.startswith("#"):
            yield name, float(value)
