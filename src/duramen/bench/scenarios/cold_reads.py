"""A consumer reads a long log from disk while producers write to another: its effect on the producers."""

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Final

from duramen.base.units import MIB
from duramen.bench.contenders import Contender
from duramen.bench.load.closed_loop import fly
from duramen.bench.load.librdkafka import read_for
from duramen.bench.load.open_loop import pace
from duramen.bench.load.percentiles import Latencies
from duramen.bench.load.schedule import Schedule
from duramen.bench.load.worker import LoadWorker
from duramen.bench.ours import Ours
from duramen.bench.report.targets import TargetOutcome, at_most, not_measured
from duramen.bench.system import cached_bytes, drop_cached

__all__ = ["measure", "steps"]

_LOG_MIB: Final = 2048
_SEGMENT_BYTES: Final = 64 * MIB
_VALUE_BYTES: Final = 512 * 1024  # so that what is measured is not how a client takes records apart
_SMALL_BYTES: Final = 1024
_RATE_HZ: Final = 200.0
_PACED_S: Final = 10.0
_WARM_S: Final = 1.0
_WANTED: Final = 1.5
_WANTED_SHARE: Final = 0.1
_PERCENTILE: Final = 99.0


def steps(rounds: int) -> int:
    """How many jobs there are."""
    return 1 + 2 * rounds


def measure(directory: Path, worker: LoadWorker, *, rounds: int, scale: float) -> list[TargetOutcome]:
    """In turns without and with the consumer; before it begins, nothing that it reads is in memory."""
    with Ours(directory / "cold", nats=False) as ours:
        long = ours.stream("long", "sync", "kafka", config={"segment.bytes": _SEGMENT_BYTES})
        messages = max(1, int(_LOG_MIB * scale) * MIB // _VALUE_BYTES)
        worker.run(
            f"writing {messages * _VALUE_BYTES // MIB:,} MiB", fly, long, _VALUE_BYTES, in_flight=4, warm_s=0.0,
            messages=messages,
        )  # fmt: skip
        # Whatever of it was only in memory is in files after a stop.
        ours.process.stop()
        ours.process.start()
        files = [path for path in directory.glob("cold/data/logs/*/*.log") if path.stat().st_size >= _VALUE_BYTES]
        short = ours.stream("short", "sync", "kafka")
        alone_ms: list[float | None] = []
        beside_ms: list[float | None] = []
        read = left = 0
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as readers:
            for _ in range(rounds):
                alone = _paced(worker, short, scale)
                for path in files:
                    drop_cached(path)
                reading = readers.submit(read_for, long, (_PACED_S + _WARM_S) * scale)
                beside = _paced(worker, short, scale)
                read += reading.result()
                left = max(left, sum(map(cached_bytes, files)))
                alone_ms.append(alone)
                beside_ms.append(beside)
    share = left / (messages * _VALUE_BYTES)
    return [
        _slower(alone_ms, beside_ms, read),
        at_most("of the cold data in memory afterwards", share, _WANTED_SHARE, "of it", f"{left / MIB:,.0f} MiB"),
    ]


def _slower(alone_ms: Sequence[float | None], beside_ms: Sequence[float | None], read: int) -> TargetOutcome:
    target = f"p99 of {_RATE_HZ:g} records a second while a consumer reads cold data"
    pairs = [(a, b) for a, b in zip(alone_ms, beside_ms, strict=True) if a is not None and b is not None]
    if not pairs:
        return not_measured(target, f"at most {_WANTED:g} x", "the samples are too few")
    alone, beside = (median(figures) for figures in zip(*pairs, strict=True))
    figures = f"{beside:.2f} ms, alone {alone:.2f} ms; {read / MIB:,.0f} MiB were read"
    return at_most(target, median(b / a for a, b in pairs), _WANTED, "x", figures, "without it")


def _paced(worker: LoadWorker, contender: Contender, scale: float) -> float | None:
    warm, schedule = Schedule(_RATE_HZ, _WARM_S * scale), Schedule(_RATE_HZ, _PACED_S * scale)
    took_us = worker.run(f"{_RATE_HZ:g} records a second", pace, contender, _SMALL_BYTES, warm, schedule)
    return Latencies(took_us).at_ms(_PERCENTILE)
