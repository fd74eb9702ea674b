"""Whether the memory of Spark's processes grows during a long streaming query through `format("duramen")`."""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import IO, Final

import psutil
from confluent_kafka import Producer

from duramen.base.errors import RequestInvalid
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.targets import TargetOutcome, at_most
from duramen.bench.spark.sides import PARTITIONS, VALUE_BYTES, BenchSide, both, environment, process

__all__ = ["measure_memory"]

_RATE_HZ: Final = 5000
_SAMPLE_S: Final = 5.0
_MIB: Final = 1 << 20
_GROWTH_PERCENT: Final = 5.0


def measure_memory(directory: Path, worker: LoadWorker, *, minutes: float) -> list[TargetOutcome]:
    """Memory of the Python processes, and of the JVM behind its garbage: its growth over the second half of the run.

    The first half is left out: pools and caches fill up in it. Raises RequestInvalid.
    """
    with both(directory, "memory", peer=False) as (side,):
        worker.say(f"memory over {minutes:g} minutes")
        samples = _watched(side, directory, minutes * 60)
        worker.step()
    if len(samples) < 8:
        raise RequestInvalid(f"{minutes:g} minutes are too short: memory was looked at {len(samples)} times")
    quarter = len(samples) // 4
    outcomes = []
    for what, values in (("Python", [one[0] for one in samples]), ("JVM", [one[1] for one in samples])):
        medians = [median(values[at * quarter : (at + 1) * quarter]) for at in range(4)]
        before, after = medians[2:]
        target = f"Spark, {what}'s memory over {minutes:g} minutes: last quarter over the one before"
        absolute = f"its quarters: {', '.join(f'{one / _MIB:.0f}' for one in medians)} MiB"
        outcomes.append(at_most(target, 100 * (after / before - 1), _GROWTH_PERCENT, "%", absolute))
    return outcomes


def _watched(side: BenchSide, places: Path, seconds: float) -> Sequence[tuple[int, int]]:
    command = process(side, "drained", cores=2, runs=1, places=places)
    with (
        (places / "memory.log").open("w") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment(side)
        ) as query,
    ):
        assert query.stdout is not None
        try:
            return _loaded(side, query.stdout, psutil.Process(query.pid), seconds)
        finally:
            for child in psutil.Process(query.pid).children(recursive=True):
                child.kill()
            query.kill()


def _loaded(side: BenchSide, said: IO[str], query: psutil.Process, seconds: float) -> Sequence[tuple[int, int]]:
    producer = Producer({"bootstrap.servers": side.servers, "acks": "all", "linger.ms": 20})
    padding = " " * (VALUE_BYTES - 20)
    producer.produce(side.stream, str(time.time_ns()), partition=0)
    producer.flush()
    if not said.readline():
        raise RequestInvalid("Spark ended before it showed anything")
    samples: list[tuple[int, int]] = []
    began_s = sampled_s = time.monotonic()
    sent = 0
    while (now_s := time.monotonic()) < began_s + seconds:
        while sent < (now_s - began_s) * _RATE_HZ:
            producer.produce(side.stream, f"{time.time_ns()}{padding}", partition=sent % PARTITIONS)
            sent += 1
        producer.poll(0.02)
        if now_s >= sampled_s + _SAMPLE_S:
            sampled_s = now_s
            samples.append(_resident(query))
    return samples


def _resident(query: psutil.Process) -> tuple[int, int]:
    """Bytes of the Python processes, the driver's and the workers', and of the JVM."""
    python = jvm = 0
    for one in (query, *query.children(recursive=True)):
        try:
            size, name = one.memory_info().rss, one.name()
        except psutil.NoSuchProcess:
            continue
        if name == "java":
            jvm += size
        else:
            python += size
    return python, jvm
