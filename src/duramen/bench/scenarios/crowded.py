"""Small batches to a thousand logs at once: compared with `os`, and the write amplification on disk."""

import time
from pathlib import Path
from typing import Final

from duramen.bench.contenders import Contender
from duramen.bench.load.closed_loop import ClosedLoopResult, fly
from duramen.bench.load.worker import LoadWorker
from duramen.bench.ours import Ours
from duramen.bench.report.sizes import size_name
from duramen.bench.report.targets import Rounds, TargetOutcome, at_least, at_most, not_measured
from duramen.bench.system import written_bytes
from duramen.codec.batch import BatchInput, encode

__all__ = ["measure", "steps"]

_LOGS: Final = 1000
_A_REQUEST: Final = 100
_SIZES: Final = (256, 1024)
_LOAD_S: Final = 10.0
_SETTLE_S: Final = 6.0  # what waits in memory is copied into segments after five
_WARM_BYTES: Final = 600_000_000
_WARM_BATCH_BYTES: Final = 256 * 1024
_WANTED: Final = 0.7
_AMPLIFICATION: Final = 3.0
_SYNC, _OS = "duramen sync", "duramen os"


def steps(rounds: int) -> int:
    """How many jobs there are."""
    return 1 + 2 * rounds * len(_SIZES)


def measure(directory: Path, worker: LoadWorker, *, rounds: int, scale: float) -> list[TargetOutcome]:
    """Both durabilities in turns; `scale` makes it shorter. What others write to the disk meanwhile counts as ours."""
    outcomes = []
    with Ours(directory / "crowded", nats=False) as ours:
        streams = [ours.stream(durability, durability, "kafka", _LOGS) for durability in ("sync", "os")]
        _warm(worker, ours, scale)
        for size in _SIZES:
            rates, written = Rounds(), Rounds()
            for number in range(rounds):
                for stream in reversed(streams) if number % 2 else streams:
                    _round(directory, worker, stream, size, scale, rates, written)
            outcomes += _outcomes(size, rates, written)
        ours.process.kill()  # stopping in order would sync all of it, to be thrown away
    return outcomes


def _warm(worker: LoadWorker, ours: Ours, scale: float) -> None:
    """Have the write-ahead log's files made: they are written with zeros once, and then used again and again."""
    messages = max(1, int(_WARM_BYTES * min(1.0, scale)) // _WARM_BATCH_BYTES)
    stream = ours.stream("warm", "sync", "kafka")
    worker.run("warming up", fly, stream, _WARM_BATCH_BYTES, in_flight=8, warm_s=0.0, messages=messages)
    time.sleep(_SETTLE_S * min(1.0, scale))


def _outcomes(size: int, rates: Rounds, written: Rounds) -> list[TargetOutcome]:
    name = f"batches of {size_name(size)} to {_LOGS:,} logs"
    absolute = f"{rates.medians[_SYNC]:,.0f} batches/s, os {rates.medians[_OS]:,.0f}"
    rate = at_least(name, rates.ratio(_SYNC, _OS), _WANTED, _OS, absolute)
    target = f"{name}: bytes to disk"
    if _SYNC not in written.medians or _OS not in written.medians:
        return [rate, not_measured(target, f"at most {_AMPLIFICATION:g} x", "the system does not say for this disk")]
    figures = f"os {written.medians[_OS]:.2f}"
    return [rate, at_most(target, written.medians[_SYNC], _AMPLIFICATION, "x", figures, "the batches' own")]


def _round(
    directory: Path,
    worker: LoadWorker,
    contender: Contender,
    size: int,
    scale: float,
    rates: Rounds,
    written: Rounds,
) -> None:
    partitions = [range(first, first + _A_REQUEST) for first in range(0, _LOGS, _A_REQUEST)]
    before = written_bytes(directory)
    # Nothing of it is warming up: every batch that was acknowledged has been written and counts.
    found: ClosedLoopResult = worker.run(
        f"{size_name(size)} to {_LOGS:,} logs, {contender.name}", fly, contender, size,
        connections=len(partitions), partitions=partitions, warm_s=0.0, duration_s=_LOAD_S * scale,
    )  # fmt: skip
    time.sleep(_SETTLE_S * min(1.0, scale))
    after = written_bytes(directory)
    batches = found.requests * _A_REQUEST
    batch_bytes = len(encode([BatchInput(0, None, bytes(size))]))
    rates.add(contender.name, batches / found.seconds)
    if before is not None and after is not None:
        written.add(contender.name, (after - before) / (batches * batch_bytes))
