"""The inventory of a node: load of many topics, bytes a topic, lookups, pages, and a restart.

Names have 48 random bits, 10,000 of them in a namespace. Two clients load them through the bulk path, each request
durable and in the view before its answer; the time to make the names up counts too. Lookups draw from all names.
"""

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Barrier, Thread
from typing import Final

import psutil

from duramen.bench.commands import console_for, show
from duramen.bench.report.documents import targets_document, write_document
from duramen.bench.report.tables import targets_table
from duramen.bench.report.targets import TargetOutcome, at_most, told
from duramen.client.api.client import Client, connect
from duramen.node.process import NodeProcess

__all__ = ["measure_inventory"]

_IN_NAMESPACE: Final = 10_000
_CLIENTS: Final = 2
_TENANT: Final = "bench"
_LOOKED_UP: Final = 50
_DRAWN: Final = 500
_CONNECTIONS: Final = 64
_CHANGED: Final = 50
_BATCHES: Final = 5
_CHANGE_HZ: Final = 15_000
_MEASURE_S: Final = 5.0
_LOAD_HZ: Final = 500_000
_VIEW_BYTES: Final = 40.0
_LOG_BYTES: Final = 8.0
_LOOKUP_MS: Final = 10.0
_LOOKUP_HZ: Final = 20_000
_PAGE_MS: Final = 10.0
_RESTART_S: Final = 1.5
_MEMORY_MIB: Final = 512.0
_MIB: Final = 1 << 20


def _names(namespace: int) -> list[str]:
    digits = random.Random(namespace).randbytes(6 * _IN_NAMESPACE).hex()
    return [f"device-{digits[at : at + 12]}/telemetry" for at in range(0, len(digits), 12)]


def measure_inventory(output: Path, *, topics: int, as_json: bool = False) -> None:
    """Load so many topics, and measure; prints a table, or JSON, writes inventory.json."""
    console = console_for(as_json=as_json)
    namespaces = max(1, topics // _IN_NAMESPACE)
    with tempfile.TemporaryDirectory(dir=output, prefix="data-", ignore_cleanup_errors=True) as directory:
        outcomes = _Measured(Path(directory).absolute() / "node", namespaces).outcomes()
    document = output / "inventory.json"
    settings = {"topics": namespaces * _IN_NAMESPACE, "namespaces": namespaces, "clients": _CLIENTS}
    write_document(document, {"settings": settings, "targets": targets_document(outcomes)})
    show(console, targets_table(outcomes), document, as_json=as_json)


class _Measured:
    def __init__(self, directory: Path, namespaces: int) -> None:
        self._directory = directory
        self._namespaces = namespaces
        self._topics = namespaces * _IN_NAMESPACE
        self._node = NodeProcess(directory)
        self._largest_bytes = 0

    def outcomes(self) -> list[TargetOutcome]:
        with self._node, connect(self._node.http) as client:
            client.inventory.create_tenants([_TENANT])
            client.inventory.create_namespaces(_TENANT, [f"n{number}" for number in range(self._namespaces)])
            found = self._load()
            found += self._read(client)
            found += self._change()
            found.append(self._restart())
        found += self._sizes()
        memory_mib = self._largest_bytes / _MIB
        return [*found, at_most("memory of the node in all of this", memory_mib, _MEMORY_MIB, "MiB")]

    def _see_memory(self) -> None:
        self._largest_bytes = max(self._largest_bytes, psutil.Process(self._node.pid).memory_info().rss)

    def _load(self) -> list[TargetOutcome]:
        def load(first: int) -> None:
            with connect(self._node.http) as client:
                for number in range(first, self._namespaces, _CLIENTS):
                    client.inventory.create_topics(f"{_TENANT}/n{number}", _names(number))
                    self._see_memory()

        process = psutil.Process(self._node.pid)
        before, began_s = process.cpu_times(), time.perf_counter()
        clients = [Thread(target=load, args=(first,)) for first in range(_CLIENTS)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        took_s, after = time.perf_counter() - began_s, process.cpu_times()
        cpu_us = 1e6 * (after.user + after.system - before.user - before.system) / self._topics
        return [
            _at_least(f"load of {self._topics:,} topics", self._topics / took_s, _LOAD_HZ, "topics/s"),
            told("the same, processor time of the node", f"{cpu_us:.2f} µs a topic"),
        ]

    def _read(self, client: Client) -> list[TargetOutcome]:
        chance, inventory = random.Random(7), client.inventory

        def drawn() -> tuple[int, list[str]]:
            number = chance.randrange(self._namespaces)
            return number, chance.sample(_names(number), _LOOKED_UP)

        def look_up() -> None:
            number, names = chance.choice(known)
            if None in inventory.lookup(f"{_TENANT}/n{number}", names):
                raise AssertionError("a topic that was made is not found")

        def page() -> None:
            prefix = f"device-{chance.randrange(16):x}"
            inventory.search_page(f"{_TENANT}/n{chance.randrange(self._namespaces)}", prefix=prefix, limit=100)

        known = [drawn() for _ in range(_DRAWN)]
        looked_up = _timed(look_up)
        pages = _timed(page)
        self._see_memory()
        return [
            at_most(f"{_LOOKED_UP} names looked up over HTTP, p99", _p99_ms(looked_up), _LOOKUP_MS, "ms"),
            _at_least("names looked up by one client", _LOOKED_UP * len(looked_up) / _MEASURE_S, _LOOKUP_HZ, "names/s"),
            at_most("a page of 100 names over HTTP, p99", _p99_ms(pages), _PAGE_MS, "ms"),
        ]

    def _change(self) -> list[TargetOutcome]:
        """Topics made, renamed and moved in batches, each durable and checked, from many connections."""

        def each(act: Callable[[Client, str, str, int], None]) -> float:
            def run(number: int) -> None:
                here, there = (f"{_TENANT}/n{at % self._namespaces}" for at in (number, number + 1))
                with connect(self._node.http) as client:
                    client.node()
                    begin.wait()
                    for batch in range(_BATCHES):
                        act(client, here, there, _BATCHES * number + batch)

            begin = Barrier(_CONNECTIONS + 1)
            threads = [Thread(target=run, args=(number,)) for number in range(_CONNECTIONS)]
            for one in threads:
                one.start()
            begin.wait()
            began_s = time.perf_counter()
            for one in threads:
                one.join()
            return _CONNECTIONS * _BATCHES * _CHANGED / (time.perf_counter() - began_s)

        def create(client: Client, here: str, there: str, batch: int) -> None:
            del there
            _check(client.inventory.create_topics(here, _changed_names("made", batch)).created)

        def rename(client: Client, here: str, there: str, batch: int) -> None:
            del there
            _check(client.inventory.move_topics(here, _moves("made", here, "named", batch)).moved)

        def move(client: Client, here: str, there: str, batch: int) -> None:
            _check(client.inventory.move_topics(here, _moves("named", there, "moved", batch)).moved)

        what = f"in batches of {_CHANGED} from {_CONNECTIONS} connections"
        return [
            _at_least(f"topics {done} {what}", each(act), _CHANGE_HZ, "topics/s")
            for done, act in (("created", create), ("renamed", rename), ("moved", move))
        ]

    def _restart(self) -> TargetOutcome:
        self._node.kill()
        began_s = time.perf_counter()
        self._node.start()
        with connect(self._node.http) as client:
            name = _names(0)[0]
            if client.inventory.lookup(f"{_TENANT}/n0", [name]) == [None]:
                raise AssertionError("a topic that was made is gone after kill -9")
        took_s = time.perf_counter() - began_s
        self._see_memory()
        return at_most("restart after kill -9, up to the first lookup", took_s, _RESTART_S, "s")

    def _sizes(self) -> list[TargetOutcome]:
        views, logs = (self._bytes(self._directory / name) for name in ("coordinators", "logs"))
        return [
            at_most("views on disk, a topic", views / self._topics, _VIEW_BYTES, "B"),
            at_most("event log on disk, a topic", logs / self._topics, _LOG_BYTES, "B"),
        ]

    def _bytes(self, directory: Path) -> int:
        # Checkpoints are links to the same files: each counts once.
        files = {file.stat().st_ino: file.stat().st_size for file in directory.rglob("*") if file.is_file()}
        return sum(files.values())


def _changed_names(kind: str, batch: int) -> list[str]:
    return [f"{kind}-{batch}-{number}" for number in range(_CHANGED)]


def _moves(kind: str, namespace: str, to: str, batch: int) -> dict[str, str]:
    new = _changed_names(to, batch)
    return {name: f"{namespace}/{other}" for name, other in zip(_changed_names(kind, batch), new, strict=True)}


def _check(changed: int) -> None:
    if changed != _CHANGED:
        raise AssertionError(f"{_CHANGED - changed} topics of a batch were not changed")


def _timed(act: Callable[[], None]) -> list[float]:
    """How long each of many took, in a time that is long enough."""
    taken_s, end_s = list[float](), time.perf_counter() + _MEASURE_S
    while (began_s := time.perf_counter()) < end_s:
        act()
        taken_s.append(time.perf_counter() - began_s)
    return taken_s


def _p99_ms(taken_s: Sequence[float]) -> float:
    return 1000 * sorted(taken_s)[int(0.99 * (len(taken_s) - 1))]


def _at_least(what: str, value: float, wanted: float, unit: str) -> TargetOutcome:
    met = value >= wanted
    short = "" if met else f"{100 * (1 - value / wanted):.0f} % short"
    return TargetOutcome(what, f"at least {wanted:,.0f} {unit}", f"{value:,.0f} {unit}", met, short)
