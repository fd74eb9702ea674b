"""Start with many logs and with large ones: after a clean stop, and after kill -9 with a tail to replay."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from duramen.base.units import MIB
from duramen.bench.contenders import Contender
from duramen.bench.hoard import Hoard, make_hoard, stream_name
from duramen.bench.load.closed_loop import fly
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.targets import TargetOutcome, at_most
from duramen.bench.system import Use, use
from duramen.node.process import NodeProcess

__all__ = ["measure", "steps"]

_START_S: Final = 300.0
_LARGE_S: Final = 1.0
_MANY_S: Final = 5.0
_MANY_MIB: Final = 300.0
_FILES: Final = 1500  # two for each of 512 segments that stay open, and what goes on besides
_SAME: Final = 1.5
_TAILS_MIB: Final = (0, 32, 96)
_SAME_TAIL_MIB: Final = 32
_REPLAYED_MIB_A_SECOND: Final = 40
_VALUE_BYTES: Final = 64 * 1024
_SMALL_BYTES: Final = 256
_PARTITIONS_A_REQUEST: Final = 100
_LOGS, _MANY_LOGS = 1000, 10_000
_STREAMS: Final = 10
_COPY_INTERVAL_MS: Final = 1000  # sooner than by default: the files that this opens are to be seen
_MIB_A_LOG, _MANY_MIB_A_LOG = 100, 10


class _Found(NamedTuple):
    ready_s: list[float]
    use: Use


def steps(rounds: int) -> int:
    """How many starts there are."""
    return 5 + 3 * rounds + (len(_TAILS_MIB) + 1) * rounds


def measure(directory: Path, worker: LoadWorker, *, rounds: int, scale: float) -> list[TargetOutcome]:
    """Start `rounds` times on each directory; `scale` makes fewer logs."""
    logs, many = max(1, int(_LOGS * scale)), max(_STREAMS, int(_MANY_LOGS * scale))
    large = Hoard(logs, 1, _MIB_A_LOG)
    outcomes = [_clean(directory, worker, large, rounds, _LARGE_S)[0]]
    outcomes += _killed(directory, worker, large, rounds)
    outcomes += _clean(directory, worker, Hoard(many, 1, _MANY_MIB_A_LOG), rounds, _MANY_S)
    outcomes += _clean(directory, worker, Hoard(_STREAMS, many // _STREAMS, _MANY_MIB_A_LOG), rounds, _MANY_S)
    return outcomes


def _named(hoard: Hoard) -> str:
    return f"{hoard.logs:,} logs of {hoard.streams:,} streams, {hoard.size / 1e9:,.1f} GB"


def _made(directory: Path, worker: LoadWorker, hoard: Hoard) -> NodeProcess:
    data_dir = directory / "hoard"
    shutil.rmtree(data_dir, ignore_errors=True)
    worker.say(f"making {_named(hoard)}")
    make_hoard(data_dir, hoard)
    node = NodeProcess(data_dir, {"wal.copy.interval.ms": _COPY_INTERVAL_MS})
    # Once, so that the write-ahead log's files are there as they are after any first start.
    node.start(_START_S)
    node.stop()
    worker.step()
    return node


def _ready_s(node: NodeProcess) -> float:
    began_s = time.monotonic()
    node.start(_START_S)
    return time.monotonic() - began_s


def _clean(directory: Path, worker: LoadWorker, hoard: Hoard, rounds: int, wanted_s: float) -> list[TargetOutcome]:
    node = _made(directory, worker, hoard)
    name = _named(hoard)
    ready_s: list[float] = []
    idle = written = Use(0, 0)
    for number in range(rounds):
        worker.say(f"starting on {name}")
        ready_s.append(_ready_s(node))
        idle = use(node.pid)
        if number == rounds - 1 and hoard.partitions > 1:
            written = _write_all(node, hoard)
        node.stop()
        worker.step()
    spread = f"{min(ready_s):.2f}-{max(ready_s):.2f} of {rounds} starts"
    outcomes = [
        at_most(f"ready after a stop: {name}", median(ready_s), wanted_s, "s", spread),
        at_most(f"memory when ready: {name}", idle.resident_mib, _MANY_MIB, "MiB", f"{idle.descriptors} open files"),
    ]
    if written.descriptors:
        outcomes += [
            at_most(f"open files when every log is written to: {name}", written.descriptors, _FILES, "files"),
            at_most(f"memory when every log is written to: {name}", written.resident_mib, _MANY_MIB, "MiB"),
        ]
    return outcomes


def _contender(node: NodeProcess, number: int) -> Contender:
    name = stream_name(number)
    return Contender("duramen", "sync", "kafka", node.kafka, name, name, node.kafka)


def _write_all(node: NodeProcess, hoard: Hoard) -> Use:
    """Write a record to every log; what the process held at most, as far as was seen."""
    most = use(node.pid)
    for number in range(hoard.streams):
        requests = [
            range(first, min(first + _PARTITIONS_A_REQUEST, hoard.partitions))
            for first in range(0, hoard.partitions, _PARTITIONS_A_REQUEST)
        ]
        fly(
            _contender(node, number), _SMALL_BYTES, connections=len(requests), warm_s=0.0, messages=len(requests),
            partitions=requests,
        )  # fmt: skip
        now = use(node.pid)
        most = Use(max(most.resident_mib, now.resident_mib), max(most.descriptors, now.descriptors))
    for _ in range(20):  # two seconds: see _COPY_INTERVAL_MS
        time.sleep(0.1)
        now = use(node.pid)
        most = Use(max(most.resident_mib, now.resident_mib), max(most.descriptors, now.descriptors))
    return most


def _killed(directory: Path, worker: LoadWorker, hoard: Hoard, rounds: int) -> list[TargetOutcome]:
    """Ready again after kill -9: by the tail that is not in synced segments, and whatever the log before it is."""
    small = hoard._replace(batches=1)
    ready_s = _ready_by_tail(directory, worker, hoard, _TAILS_MIB, rounds)
    small_s = _ready_by_tail(directory, worker, small, (_SAME_TAIL_MIB,), rounds)[_SAME_TAIL_MIB]
    name = _named(hoard)
    idle_s, same_s = ready_s[0], ready_s[_SAME_TAIL_MIB]
    outcomes = [at_most(f"ready after kill -9, nothing to replay: {name}", idle_s, _LARGE_S, "s")]
    for tail_mib in _TAILS_MIB[1:]:
        longer_s = ready_s[tail_mib] - idle_s
        figures = f"{ready_s[tail_mib]:.2f} s in all"
        wanted_s = tail_mib / _REPLAYED_MIB_A_SECOND
        outcomes.append(
            at_most(f"longer with {tail_mib} MiB to replay", longer_s, wanted_s, "s", figures, "40 MiB a second")
        )
    figures = f"{same_s:.2f} s; {small_s:.2f} s beside {small.size / 1e9:,.1f} GB"
    target = f"ready with {_SAME_TAIL_MIB} MiB to replay, of the same beside a hundredth of the log"
    return [*outcomes, at_most(target, same_s / small_s, _SAME, "x", figures)]


def _ready_by_tail(
    directory: Path, worker: LoadWorker, hoard: Hoard, tails_mib: Sequence[int], rounds: int
) -> dict[int, float]:
    node = _made(directory, worker, hoard)
    node.start(_START_S)
    found: dict[int, list[float]] = {tail_mib: [] for tail_mib in tails_mib}
    for _ in range(rounds):
        for tail_mib in tails_mib:
            _write_tail(node, hoard, tail_mib)
            node.kill()
            worker.say(f"starting after kill -9, {tail_mib} MiB to replay")
            found[tail_mib].append(_ready_s(node))
            worker.step()
    node.stop()
    return {tail_mib: median(ready_s) for tail_mib, ready_s in found.items()}


def _write_tail(node: NodeProcess, hoard: Hoard, tail_mib: int) -> None:
    if not tail_mib:
        return
    streams = min(hoard.streams, _STREAMS)
    messages = max(1, tail_mib * MIB // _VALUE_BYTES // streams)
    for number in range(streams):
        fly(_contender(node, number), _VALUE_BYTES, in_flight=8, warm_s=0.0, messages=messages)
