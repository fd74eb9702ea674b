"""The inventory of a node: many topics loaded, bytes a topic, lookups, pages, changes, topics in use, and a restart.

Names have 48 random bits, 10,000 of them per namespace. Clients in processes of their own use the bulk path; each
response means durable and visible. Lookups draw from all names. On a shared machine CPU time is more meaningful than
wall time; both are reported.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Barrier, Thread
from typing import Final, Literal

import psutil
from rich.console import Console

from duramen.bench.bare import write_throughput
from duramen.bench.commands import console_for, show
from duramen.bench.load.inventory import IN_NAMESPACE, TENANT, load_topics, topic_names
from duramen.bench.load.metadata import pace_metadata
from duramen.bench.report.documents import targets_document, write_document
from duramen.bench.report.plot import CurvePoint, plot_curves
from duramen.bench.report.tables import targets_table
from duramen.bench.report.targets import TargetOutcome, at_most, told
from duramen.bench.scenarios.inventory_reads import NAMES, Timed, read_inventory, read_view
from duramen.bench.scenarios.inventory_use import first_records, use_topics
from duramen.bench.scenarios.topic_curves import kafka_curve, our_curve
from duramen.bench.system import MemoryWatch
from duramen.client.api.client import Client, connect
from duramen.node.process import NodeProcess

__all__ = ["InventoryPart", "measure_inventory"]

InventoryPart = Literal["node", "curves"]

_CONNECTIONS: Final = 64
_CHANGED: Final = 50
_BATCHES: Final = 5
_FIRSTS: Final = 300
_PACED_S: Final = 10.0
_BARE_WRITES: Final = 200
_MIB: Final = 1 << 20
_MINUTE_S: Final = 60.0

_CHANGE_HZ: Final = 15_000
_LOAD_HZ: Final = 500_000
_VIEW_BYTES: Final = 40.0
_LOG_BYTES: Final = 8.0
_VIEW_HZ: Final = 50_000
_VIEW_MS: Final = 1.0
_LOOKUP_MS: Final = 10.0
_LOOKUP_HZ: Final = 20_000
_PAGE_MS: Final = 10.0
_FIRST_MS: Final = 20.0
_IN_USE_MIB: Final = 500.0
_IDLE_PERCENT: Final = 2.0
_RESTART_S: Final = 1.5
_MEMORY_MIB: Final = 512.0


def measure_inventory(
    output: Path,
    *,
    parts: Sequence[InventoryPart],
    topics: int,
    used: int = 0,
    peer: bool = False,
    minutes: float,
    memory_mib: int,
    as_json: bool = False,
) -> None:
    """Measure these parts; prints a table, or JSON, writes inventory.json, and with curves inventory.svg.

    Duramen's curve goes up to so many topics, and where `peer` is asked for Kafka's as far as minutes and memory go.
    """
    console, began_s = console_for(as_json=as_json), time.time()
    namespaces = max(1, topics // IN_NAMESPACE)
    outcomes, written, curves = list[TargetOutcome](), list[Path](), dict[str, list[CurvePoint]]()
    with tempfile.TemporaryDirectory(dir=output, prefix="data-", ignore_cleanup_errors=True) as directory:
        place = Path(directory).absolute()
        if "node" in parts:
            outcomes += _Measured(place / "node", namespaces, used, console).outcomes()
        if "curves" in parts:
            curves, found = _curves(place, topics, minutes, memory_mib if peer else 0, console)
            outcomes += found
            written.append(output / "inventory.svg")
            plot_curves(curves, written[0])
    document = output / "inventory.json"
    settings = {"parts": list(parts), "topics": namespaces * IN_NAMESPACE, "namespaces": namespaces, "used": used}
    machine = {"load_average": os.getloadavg(), "took_s": time.time() - began_s}
    of_curves = {name: [point._asdict() for point in points] for name, points in curves.items()}
    figures = {"curves": of_curves, "targets": targets_document(outcomes)}
    write_document(document, {"settings": settings, **machine, **figures})
    show(console, targets_table(outcomes), document, *written, as_json=as_json)


def _curves(
    directory: Path, topics: int, minutes: float, kafka_mib: int, console: Console
) -> tuple[dict[str, list[CurvePoint]], list[TargetOutcome]]:
    """Those of Duramen, for half of the minutes at most, and of Kafka for the rest, where it may have memory."""

    def tell(text: str) -> None:
        console.print(text, soft_wrap=True)

    began_s, all_s, why = time.time(), _MINUTE_S * minutes, ""
    ours_s = all_s / 2 if kafka_mib else all_s
    curves = {"Duramen": our_curve(directory / "curve", topics, began_s + ours_s, tell)}
    if kafka_mib:
        curves["Apache Kafka"], why = kafka_curve(directory / "kafka", kafka_mib, began_s + all_s, tell)
    outcomes = list[TargetOutcome]()
    for name, points in curves.items():
        for point in points:
            outcomes.append(told(f"{name} with {point.topics:,} topics", str(point)))
    return curves, [*outcomes, told("Apache Kafka ended", why)] if why else outcomes


class _Measured:
    def __init__(self, directory: Path, namespaces: int, used: int, console: Console) -> None:
        self._directory = directory
        self._namespaces = namespaces
        self._topics = namespaces * IN_NAMESPACE
        self._used = used
        self._console = console
        self._node = NodeProcess(directory)

    def outcomes(self) -> list[TargetOutcome]:
        found = list[TargetOutcome]()
        memory = MemoryWatch(lambda: self._node.pid)
        with self._node, memory, connect(self._node.http) as client:
            for step in self._steps(client):
                for one in step():
                    # Told at once: a large inventory takes long.
                    load = os.getloadavg()[0]
                    self._console.print(f"{one.target}: {one.measured} (load average {load:.1f})", soft_wrap=True)
                    found.append(one)
        return [*found, at_most("memory of the node in all of this", memory.largest_mib, _MEMORY_MIB, "MiB")]

    def _steps(self, client: Client) -> list[Callable[[], Iterator[TargetOutcome]]]:
        reads = [lambda: self._read(client), self._first]
        return [lambda: self._load(client), *reads, self._restart, self._change, self._use, self._view]

    # -- load ---------------------------------------------------------------------------------------

    def _load(self, client: Client) -> Iterator[TargetOutcome]:
        client.inventory.create_tenants([TENANT])
        client.inventory.create_namespaces(TENANT, [f"n{number}" for number in range(self._namespaces)])
        process = psutil.Process(self._node.pid)
        before = process.cpu_times()

        def tell(loaded: int, after_s: float) -> None:
            hz, mib = loaded / after_s, process.memory_info().rss / _MIB
            text = f"{loaded:,} of {self._topics:,} topics, {hz:,.0f} each second, memory of the node {mib:.0f} MiB"
            self._console.print(text, soft_wrap=True)

        took_s = load_topics(self._node.http, self._namespaces, tell)
        after = process.cpu_times()
        cpu_us = 1e6 * (after.user + after.system - before.user - before.system) / self._topics
        yield _at_least(f"load of {self._topics:,} topics", self._topics / took_s, _LOAD_HZ, "topics/s")
        yield told("the same, processor time of the node", f"{cpu_us:.2f} µs a topic")
        logged, writes = int(_LOG_BYTES * IN_NAMESPACE), min(_BARE_WRITES, self._namespaces)
        bare_s = write_throughput(self._directory, logged, writes, sync=True) / writes
        ratio = took_s / (bare_s * self._namespaces)
        yield told(f"the load over bare writes of {_LOG_BYTES:.0f} B a topic, each request synced", f"{ratio:.1f} x")

    def _bytes(self, name: str) -> int:
        # Checkpoints are links to the same files: each counts once. Of a segment that is written only what it has.
        found = [file.stat() for file in (self._directory / name).rglob("*") if file.is_file()]
        return sum({one.st_ino: min(one.st_size, 512 * one.st_blocks) for one in found}.values())

    # -- reads --------------------------------------------------------------------------------------

    def _read(self, client: Client) -> Iterator[TargetOutcome]:
        looked_up, metadata, page, search = read_inventory(client, self._node, self._namespaces)
        for one, wanted_ms in ((looked_up, _LOOKUP_MS), (metadata, _LOOKUP_MS), (page, _PAGE_MS), (search, None)):
            yield from _latency(one, wanted_ms)
        for one in (looked_up, metadata):
            yield _at_least(f"{one.what}, one client", NAMES * one.each_second, _LOOKUP_HZ, "names/s")
        yield from self._paced()

    def _paced(self) -> Iterator[TargetOutcome]:
        """Metadata at a fixed rate, of names that are drawn from all there are."""
        process = psutil.Process(self._node.pid)
        before = process.cpu_times()
        found = pace_metadata(self._node.kafka, self._namespaces, NAMES, _LOOKUP_HZ, _PACED_S)
        after, count = process.cpu_times(), NAMES * found.latencies.count
        cpu_us = 1e6 * (after.user + after.system - before.user - before.system) / count
        what = f"Metadata of {NAMES} names at a fixed rate of {_LOOKUP_HZ:,} names/s"
        yield at_most(f"{what}, p99", found.latencies.at_ms(99) or found.latencies.max_ms, _LOOKUP_MS, "ms")
        shares = f"{cpu_us:.1f} µs of the node and {1e6 * found.client_cpu_s / count:.1f} of the clients a name"
        yield told("the same, p50", f"{found.latencies.at_ms(50) or 0:.2f} ms, {shares}")

    def _view(self) -> Iterator[TargetOutcome]:
        self._node.stop()
        for what, name, wanted in (("views", "coordinators", _VIEW_BYTES), ("event log", "logs", _LOG_BYTES)):
            yield at_most(f"{what} on disk, a topic", self._bytes(name) / self._topics, wanted, "B")
        found, together = read_view(self._directory, self._namespaces)
        yield _at_least(f"{found.what}, uniformly, warm", found.each_second, _VIEW_HZ, "names/s")
        yield told("the same, processor time", f"{found.cpu_us:.1f} µs a name")
        yield at_most("the same, p99", found.percentile_ms(0.99), _VIEW_MS, "ms")
        each_second, cpu_us = NAMES * together.each_second, together.cpu_us / NAMES
        yield told(together.what, f"{each_second:,.0f} names/s, {cpu_us:.1f} µs a name")

    # -- use ----------------------------------------------------------------------------------------

    def _first(self) -> Iterator[TargetOutcome]:
        found = Timed("first acknowledged record of a producer on an idle topic", first_records(
            self._node, self._namespaces, _FIRSTS), 0.0)  # fmt: skip
        yield at_most(f"{found.what}, p50", found.percentile_ms(0.5), _FIRST_MS, "ms")
        yield told("the same, p99", f"{found.percentile_ms(0.99):.1f} ms")

    def _use(self) -> Iterator[TargetOutcome]:
        if not self._used:
            return
        found = use_topics(self._node, self._namespaces, self._used)
        yield at_most(f"memory with {found.topics:,} topics in use", found.memory_bytes / _MIB, _IN_USE_MIB, "MiB")
        yield at_most("the same, processor while idle", 100 * found.idle_share, _IDLE_PERCENT, "%")
        records = f"{found.produced_hz:,.0f}/s, {found.cpu_us:.0f} µs of the node each"
        yield told("the same, first records of their topics", records)

    # -- changes ------------------------------------------------------------------------------------

    def _change(self) -> Iterator[TargetOutcome]:
        """Topics made, renamed and moved in batches, each durable and checked, from many connections."""

        def create(client: Client, here: str, there: str, batch: int) -> None:
            del there
            _check(client.inventory.create_topics(here, _changed_names("made", batch)).created)

        def rename(client: Client, here: str, there: str, batch: int) -> None:
            del there
            _check(client.inventory.move_topics(here, _moves("made", here, "named", batch)).moved)

        def move(client: Client, here: str, there: str, batch: int) -> None:
            _check(client.inventory.move_topics(here, _moves("named", there, "moved", batch)).moved)

        what = f"in batches of {_CHANGED} from {_CONNECTIONS} connections"
        for done, act in (("created", create), ("renamed", rename), ("moved", move)):
            hz, cpu_us, client_us = self._changed(act)
            yield _at_least(f"topics {done} {what}", hz, _CHANGE_HZ, "topics/s")
            figures = f"{cpu_us:.0f} µs of the node and {client_us:.1f} of the clients a topic"
            yield told("the same, processor time", figures)

    def _changed(self, act: Callable[[Client, str, str, int], None]) -> tuple[float, float, float]:
        """Topics a second, and the processor's time in µs that a topic takes in the node and in this process."""

        def run(number: int) -> None:
            here, there = (f"{TENANT}/n{at % self._namespaces}" for at in (number, number + 1))
            with connect(self._node.http) as client:
                client.node()
                begin.wait()
                for batch in range(_BATCHES):
                    act(client, here, there, _BATCHES * number + batch)

        begin, process = Barrier(_CONNECTIONS + 1), psutil.Process(self._node.pid)
        threads = [Thread(target=run, args=(number,)) for number in range(_CONNECTIONS)]
        for one in threads:
            one.start()
        begin.wait()
        before, own_s, began_s = process.cpu_times(), time.process_time(), time.perf_counter()
        for one in threads:
            one.join()
        took_s, own_s, after = time.perf_counter() - began_s, time.process_time() - own_s, process.cpu_times()
        count = _CONNECTIONS * _BATCHES * _CHANGED
        cpu_s = after.user + after.system - before.user - before.system
        return count / took_s, 1e6 * cpu_s / count, 1e6 * own_s / count

    # -- the end ------------------------------------------------------------------------------------

    def _restart(self) -> Iterator[TargetOutcome]:
        self._node.kill()
        began_s = time.perf_counter()
        self._node.start()
        ready_s = time.perf_counter() - began_s
        with connect(self._node.http) as client:
            if client.inventory.lookup(f"{TENANT}/n0", [topic_names(0)[0]]) == [None]:
                raise AssertionError("a topic that was made is gone after kill -9")
        took_s = time.perf_counter() - began_s
        used = psutil.Process(self._node.pid).cpu_times()
        figures = f"ready after {ready_s:.2f} s, {used.user + used.system:.2f} s of the processor"
        yield at_most("restart after kill -9, up to the first lookup", took_s, _RESTART_S, "s", figures)


def _latency(one: Timed, wanted_ms: float | None) -> Iterator[TargetOutcome]:
    p99_ms = one.percentile_ms(0.99)
    if wanted_ms is None:
        yield told(f"{one.what}, p99", f"{p99_ms:.1f} ms")
    else:
        yield at_most(f"{one.what}, p99", p99_ms, wanted_ms, "ms")
    yield told("the same, p50", f"{one.percentile_ms(0.5):.2f} ms, {one.cpu_us:,.0f} µs of the node")


def _changed_names(kind: str, batch: int) -> list[str]:
    return [f"{kind}-{batch}-{number}" for number in range(_CHANGED)]


def _moves(kind: str, namespace: str, to: str, batch: int) -> dict[str, str]:
    new = _changed_names(to, batch)
    return {name: f"{namespace}/{other}" for name, other in zip(_changed_names(kind, batch), new, strict=True)}


def _check(changed: int) -> None:
    if changed != _CHANGED:
        raise AssertionError(f"{_CHANGED - changed} topics of a batch were not changed")


def _at_least(what: str, value: float, wanted: float, unit: str) -> TargetOutcome:
    met = value >= wanted
    short = "" if met else f"{100 * (1 - value / wanted):.0f} % short"
    return TargetOutcome(what, f"at least {wanted:,.0f} {unit}", f"{value:,.0f} {unit}", met, short)
