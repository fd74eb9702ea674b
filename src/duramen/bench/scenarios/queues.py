"""Light queues on a node: rates in batches and one at a time, reads, edits, memory, idle cost, restarts."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from duramen.base.native import is_installed
from duramen.bench.load.queues import (
    VALUE_BYTES,
    Work,
    change,
    empty,
    put_batches,
    put_single,
    queue_name,
    read_back,
    read_random,
)
from duramen.bench.load.worker import LoadWorker
from duramen.bench.queue_views import reads_of_view
from duramen.bench.report.targets import TargetOutcome, at_most, told
from duramen.bench.system import cpu_s, use, written_bytes
from duramen.client.api.client import connect
from duramen.node.process import NodeProcess

__all__ = ["ENTRIES_EACH", "QueueAmounts", "amounts", "measure", "measure_batches", "steps"]

_SPACE: Final = "hot"
_MANY: Final = "many"
_CLIENTS: Final = 6
_BATCH: Final = 1_024
_TASKS: Final = 64
ENTRIES_EACH: Final = 10
"""Entries of each of many queues."""
_PUT_HZ: Final = 500_000.0
_PLAIN_PUT_HZ: Final = 150_000.0
_READ_HZ: Final = 1_000_000.0
_SINGLE_HZ: Final = 15_000.0
_CHANGE_HZ: Final = 50_000.0
_MEMORY_MIB: Final = 300.0
_VIEW_MS: Final = 1.0
_DOOR_MS: Final = 5.0
_IDLE_CPU: Final = 0.01
_RESTART_S: Final = 2.0


class QueueAmounts(NamedTuple):
    """How much there is of everything: rows in batches, queues of single rows and those that are emptied, reads."""

    rows: int
    queues: int
    emptied: int
    reads: int
    changed: int
    idle_s: float


def amounts(scale: float) -> QueueAmounts:
    """With `scale` 1: 16 million rows in six queues, and a million queues of ten entries."""
    queues = max(200, int(1_000_000 * scale))
    rows, part = max(_CLIENTS * _BATCH, int(16_000_000 * scale)), min(1.0, 10 * scale)
    reads, changed = max(100, int(5_000 * part)), max(1_000, int(100_000 * part))
    return QueueAmounts(rows, queues, queues // 10, reads, changed, 10.0 if scale > 0.01 else 1.0)


def steps(*, alone: bool) -> int:
    """How many jobs there are; `alone`: only those with rows in batches."""
    return 4 if alone else 8


def measure_batches(directory: Path, worker: LoadWorker, of: QueueAmounts) -> list[TargetOutcome]:
    """Rows in batches alone: put, read back, edited, deleted, and a restart with them."""
    with NodeProcess(directory / "batches") as node:
        outcomes = [*_batches(directory, node, worker, of), *_changing(node, worker, of)]
        return [*outcomes, _restart(node, of)]


def measure(directory: Path, worker: LoadWorker, of: QueueAmounts) -> list[TargetOutcome]:
    """All of it."""
    before, after = reads_of_view(directory, of.queues // 10, ENTRIES_EACH, of.emptied // 10, worker.say)
    outcomes = [
        _latency("100 entries of a random queue at the view: p99", before.took_s, _VIEW_MS, before.cpu_s),
        _latency(
            f"the same right after {of.emptied // 10:,} queues were emptied: p99", after.took_s, _VIEW_MS, after.cpu_s
        ),
    ]
    with NodeProcess(directory / "queues") as node:
        outcomes += _batches(directory, node, worker, of)
        outcomes += _single(node, worker, of)
        outcomes += _changing(node, worker, of)
        outcomes.append(_restart(node, of))
    return outcomes


def _create(node: NodeProcess, name: str) -> None:
    with connect(node.http) as client:
        client.spaces.create(name, shards=4)


def _rate(what: str, work: Work, node_s: float, least_hz: float, more: str = "") -> TargetOutcome:
    rate_hz, met = work.rate_hz, work.rate_hz >= least_hz
    short = "" if met else f"{100 * (1 - rate_hz / least_hz):.0f} % short"
    costs = f"µs of a processor a row: node {1e6 * node_s / work.rows:.2f}, clients {1e6 * work.cpu_s / work.rows:.2f}"
    return TargetOutcome(what, f"at least {least_hz:,.0f}/s", f"{rate_hz:,.0f}/s ({costs}{more})", met, short)


def _latency(what: str, took_s: Sequence[float], most_ms: float, of_cpu_s: Sequence[float] = ()) -> TargetOutcome:
    more = f"; of the processor p99 {_at_ms(of_cpu_s, 99):.2f} ms" if of_cpu_s else ""
    figures = f"p50 {_at_ms(took_s, 50):.2f}, longest {1000 * max(took_s):.2f} ms{more}"
    return at_most(what, _at_ms(took_s, 99), most_ms, "ms", figures)


def _at_ms(took_s: Sequence[float], share: int) -> float:
    return 1000 * sorted(took_s)[len(took_s) * share // 100]


class _Spent:
    """The processor's time that a node takes for something."""

    def __init__(self, node: NodeProcess) -> None:
        self._pid = node.pid
        self._before_s = cpu_s(node.pid)

    @property
    def cpu_s(self) -> float:
        """Since then."""
        return cpu_s(self._pid) - self._before_s


def _batches(directory: Path, node: NodeProcess, worker: LoadWorker, of: QueueAmounts) -> list[TargetOutcome]:
    _create(node, _SPACE)
    what = f"{of.rows:,} rows of {VALUE_BYTES} B, {_BATCH:,} a batch, {_CLIENTS} queues"
    way, least_hz = ("native", _PUT_HZ) if is_installed() else ("plain Python", _PLAIN_PUT_HZ)
    before, spent = written_bytes(directory), _Spent(node)
    put = worker.run(f"{of.rows:,} rows in batches", put_batches, node.http, _SPACE, _CLIENTS, of.rows, _BATCH)
    put_s, after = spent.cpu_s, written_bytes(directory)
    written = "" if before is None or after is None else f"; written {(after - before) / put.rows / VALUE_BYTES:.1f} x"
    spent = _Spent(node)
    read = worker.run("reading them back", read_back, node.http, _SPACE, _CLIENTS, of.rows)
    return [
        _rate(f"{what}, {way}", put, put_s, least_hz, written),
        _rate("reading them back", read, spent.cpu_s, _READ_HZ),
    ]


def _single(node: NodeProcess, worker: LoadWorker, of: QueueAmounts) -> list[TargetOutcome]:
    _create(node, _MANY)
    rows, spent = of.queues * ENTRIES_EACH, _Spent(node)
    put = worker.run(f"{rows:,} single rows", put_single, node.http, _MANY, of.queues, rows, _TASKS)
    outcomes = [
        _rate(
            f"{of.queues:,} queues of {ENTRIES_EACH}, single rows of {_TASKS} tasks", put.work, spent.cpu_s, _SINGLE_HZ
        ),
        at_most("memory of the node then", use(node.pid).resident_mib, _MEMORY_MIB, "MiB"),
    ]
    spent = _Spent(node)
    time.sleep(of.idle_s)
    after = spent.cpu_s / of.idle_s  # rows are compacted, and garbage is collected
    spent = _Spent(node)
    time.sleep(of.idle_s)
    what = f"{of.queues:,} idle queues, of a processor"
    more = f"{of.idle_s:.0f} s before, right after the load, {after:.3f}"
    outcomes.append(at_most(what, spent.cpu_s / of.idle_s, _IDLE_CPU, "", more))
    names = [queue_name(number) for number in range(0, of.queues - of.emptied, max(1, of.queues // 10_000))]
    outcomes += [_door(node, worker, "of a random queue of those", _MANY, names, of)]
    outcomes += [_door(node, worker, "of a long queue", _SPACE, [f"hot-{number}" for number in range(_CLIENTS)], of)]
    gone = range(of.queues - of.emptied, of.queues)
    work = worker.run(f"emptying {of.emptied:,} queues", empty, node.http, _MANY, gone, _TASKS)
    outcomes.append(told("queues emptied, a read and a deletion each", f"{work.rate_hz:,.0f}/s"))
    beside = [*names[-1000:], *(queue_name(number) for number in gone[:1000])]
    return [*outcomes, _door(node, worker, f"right after {of.emptied:,} queues were emptied", _MANY, beside, of)]


def _door(
    node: NodeProcess, worker: LoadWorker, what: str, space: str, queues: Sequence[str], of: QueueAmounts
) -> TargetOutcome:
    took_s = worker.run(f"100 entries {what}", read_random, node.http, space, queues, of.reads)
    return _latency(f"100 entries {what} at the door: p99", took_s, _DOOR_MS)


def _changing(node: NodeProcess, worker: LoadWorker, of: QueueAmounts) -> list[TargetOutcome]:
    queues, outcomes = [f"hot-{number}" for number in range(_CLIENTS)], list[TargetOutcome]()
    for what, delete in (("edits", False), ("deletions", True)):
        spent = _Spent(node)
        work = worker.run(what, change, node.http, _SPACE, queues, of.changed // _CLIENTS, delete=delete)
        outcomes.append(_rate(f"{what}, 1,000 a request", work, spent.cpu_s, _CHANGE_HZ))
    return outcomes


def _restart(node: NodeProcess, of: QueueAmounts) -> TargetOutcome:
    node.kill()
    began_s = time.monotonic()
    node.start()
    started_s = time.monotonic() - began_s
    with connect(node.http) as client:
        _until(lambda: bool(client.queues(_SPACE).retrieve("hot-0", limit=1).entries))
    took_s = time.monotonic() - began_s
    what = f"from kill -9 with {of.rows:,} rows to the first read"
    return at_most(what, took_s, _RESTART_S, "s", f"ready after {started_s:.2f} s")


def _until(done: Callable[[], bool], within_s: float = 120.0) -> None:
    end_s = time.monotonic() + within_s
    while not done() and time.monotonic() < end_s:
        time.sleep(0.01)
