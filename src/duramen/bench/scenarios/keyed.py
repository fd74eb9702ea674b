"""A keyed stream compared with an unkeyed one, and its snapshots: produce, lag, read, open, restart."""

import http.client
import importlib.util
import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from duramen.base.errors import RequestInvalid
from duramen.bench.load.keyed import VALUE_BYTES, consume_live, fill_keys, pace_keys, stream_keys, update_keys
from duramen.bench.load.percentiles import Latencies
from duramen.bench.load.schedule import Schedule
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.targets import Rounds, TargetOutcome, at_least, at_most, not_measured, told
from duramen.client.api.client import Client, connect
from duramen.keyed.leases import Leases, SnapshotLease
from duramen.keyed.snapshots import SnapshotBounds
from duramen.node.process import NodeProcess

__all__ = ["Amounts", "amounts", "measure", "steps"]

_KEYED: Final = "keyed"
_UNKEYED: Final = "unkeyed"
_WITHIN: Final = 0.1
_LAG_HZ: Final = 100_000.0
_LAG_MS: Final = 100.0
_LOOK_S: Final = 0.02
_LEASES: Final = 10_000
_OPENED: Final = 20_000
_OPEN_MS: Final = 1.0
_PAGE_BYTES: Final = 8 << 20
_VISIBLE_HZ: Final = 1_000_000
_READ_TIMES: Final = 9
_LIVE_TOPIC: Final = "dead.live"
_LIVE_HZ: Final = 200_000
_LIVE_TIMES: Final = 5
_RESTART_S: Final = 0.5
_SLOW_RESTART_S: Final = 5.0
_MANY_KEYS: Final = 50_000_000
_NS: Final = 1_000_000_000


class Amounts(NamedTuple):
    """How much there is of everything: of produced records in a round, paced ones, and keys."""

    rounds: int
    records: int
    keys: int
    paced: Schedule
    lag_s: float
    dead_keys: int
    updates_per_key: int
    restart_keys: int


def amounts(rounds: int, scale: float) -> Amounts:
    """With `scale` 1: a million keys, which are restarted with."""
    keys = max(1000, int(1_000_000 * scale))
    small = min(scale, 1.0)
    return Amounts(
        rounds,
        max(1000, int(500_000 * small)),
        min(keys, 1_000_000),
        Schedule(1000.0, max(0.3, 4.0 * small)),
        max(0.5, 8.0 * small),
        max(100, int(20_000 * small)),
        100,
        keys,
    )


def steps(of: Amounts) -> int:
    """How many jobs there are."""
    return 4 * of.rounds + 4 + _LIVE_TIMES


def measure(directory: Path, worker: LoadWorker, of: Amounts) -> list[TargetOutcome]:
    """All of it, on one node."""
    with NodeProcess(directory / _KEYED) as node, connect(node.http, timeout_s=600.0) as client:
        outcomes = _producing(node, client, worker, of)
        outcomes.append(_lag(node, client, worker, of))
        outcomes += _opening(client, of)
        outcomes += _reading(node, client, worker, of)
        outcomes += _restarting(node, client, worker, of)
    return outcomes


def _create(client: Client, name: str, *, keyed: bool, live: str = "") -> None:
    client.streams.create(name, config={"cleanup.policy": "compact", "keyed": keyed, "keyed.live.topic": live})


# -- producing --------------------------------------------------------------------------------------


def _producing(node: NodeProcess, client: Client, worker: LoadWorker, of: Amounts) -> list[TargetOutcome]:
    rates, tails = Rounds(), Rounds()
    for number in range(of.rounds):
        for name in ((_KEYED, _UNKEYED), (_UNKEYED, _KEYED))[number % 2]:
            stream, what = f"{name}-{number}", f"records to a stream that is {name}"
            _create(client, stream, keyed=name == _KEYED)
            took_s = worker.run(f"many {what}", update_keys, node.kafka, stream, of.records, of.keys)
            rates.add(name, of.records / took_s)
            found = worker.run(f"single {what}", pace_keys, node.kafka, stream, of.paced, of.keys)
            tails.add(name, Latencies(found).at_ms(99) or max(found) / 1000)
            client.streams.delete(stream)
    both = {name: rates.medians[name] / 1000 for name in (_KEYED, _UNKEYED)}
    size = f"{VALUE_BYTES} B"
    slow = {name: tails.medians[name] for name in (_KEYED, _UNKEYED)}
    return [
        at_least(
            f"producing {size} to a keyed stream", rates.ratio(_KEYED, _UNKEYED), 1 - _WITHIN, _UNKEYED,
            f"{both[_KEYED]:,.0f} k and {both[_UNKEYED]:,.0f} k records/s",
        ),
        at_most(
            f"p99 of single records at {of.paced.rate_hz:,.0f}/s", tails.ratio(_KEYED, _UNKEYED), 1 + _WITHIN, "x",
            f"{slow[_KEYED]:.2f} and {slow[_UNKEYED]:.2f} ms", _UNKEYED,
        ),
    ]  # fmt: skip


# -- the view behind its log ------------------------------------------------------------------------


class _Looks(threading.Thread):
    """Looks how far the newest snapshot is behind the high watermark, again and again until it is stopped."""

    def __init__(self, node: NodeProcess, stream: str) -> None:
        super().__init__(daemon=True)
        self.behind: list[int] = []
        self._node = node
        self._path = f"/v1/streams/{stream}/snapshot?max_wait_ms=0"
        self._over = threading.Event()

    def run(self) -> None:
        """Look."""
        connection = http.client.HTTPConnection(self._node.http, timeout=60)
        while not self._over.wait(_LOOK_S):
            try:
                found = _get(connection, self._path)["partitions"][0]
            except RequestInvalid:
                continue  # the view is being loaded
            self.behind.append(found["high_watermark"] - found["at"])
        connection.close()

    def stop(self) -> list[int]:
        """No more; how many records it was behind each time."""
        self._over.set()
        self.join()
        return self.behind


def _get(connection: http.client.HTTPConnection, path: str) -> Any:
    connection.request("GET", path)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != http.HTTPStatus.OK:
        raise RequestInvalid(f"{path}: {content.decode(errors='replace')}")
    return json.loads(content)


def _lag(node: NodeProcess, client: Client, worker: LoadWorker, of: Amounts) -> TargetOutcome:
    _create(client, "lag", keyed=True)
    looks = _Looks(node, "lag")
    looks.start()
    what = f"{_LAG_HZ:,.0f} updates a second"
    rate_hz = worker.run(what, stream_keys, node.kafka, "lag", _LAG_HZ, of.lag_s, of.keys)
    behind = sorted(looks.stop())
    target = f"view behind the high watermark at {_LAG_HZ:,.0f} updates/s"
    if not behind:
        return not_measured(target, f"at most {_LAG_MS:g} ms", "it was never looked at")
    most, late, middle = (1000 * behind[len(behind) * share // 100] / rate_hz for share in (99, 95, 50))
    figures = f"p95 {late:.1f}, median {middle:.1f} ms of {len(behind)} looks; {rate_hz:,.0f}/s"
    return at_most(f"{target}: p99", most, _LAG_MS, "ms", figures)


# -- opening and reading ----------------------------------------------------------------------------


def _opening(client: Client, of: Amounts) -> list[TargetOutcome]:
    """At the view: with so many leases held a snapshot is opened, its lease is entered, and S0 is asked for."""
    leases = Leases()
    for number in range(_LEASES):
        leases.put(SnapshotLease(f"lease-{number}", {0: number}, 1 << 60))
    bounds, took_ns = SnapshotBounds(0, _LEASES, 0), list[int]()
    for _ in range(_OPENED):
        began_ns = time.perf_counter_ns()
        bounds.check_snapshot(_LEASES)
        leases.put(SnapshotLease("new", {0: _LEASES}, 1 << 60))
        leases.oldest(0)
        took_ns.append(time.perf_counter_ns() - began_ns)
        leases.remove("new")
    at_view = sorted(took_ns)[len(took_ns) * 99 // 100] / 1e6
    took_s = []
    for _ in range(min(1000, of.records)):
        began_s = time.perf_counter()
        client.snapshot("lag")
        took_s.append(time.perf_counter() - began_s)
    p99_ms, p50_ms = sorted(took_s)[len(took_s) * 99 // 100] * 1000, median(took_s) * 1000
    return [
        at_most(f"opening a snapshot at the view, {_LEASES:,} leases: p99", at_view, _OPEN_MS, "ms"),
        told("opening a snapshot over HTTP", f"p50 {p50_ms:.2f} ms, p99 {p99_ms:.2f} ms"),
    ]


def _reading(node: NodeProcess, client: Client, worker: LoadWorker, of: Amounts) -> list[TargetOutcome]:
    """Through the Python client, record by record, and as Arrow, page by page."""
    _create(client, "dead", keyed=True, live=_LIVE_TOPIC)
    records = of.dead_keys * of.updates_per_key
    worker.run(f"{of.updates_per_key} updates of each key", update_keys, node.kafka, "dead", records, of.dead_keys)
    snapshot = client.snapshot("dead")
    what = f"visible records/s of a snapshot, {100 - 100 / of.updates_per_key:.0f} % superseded,"
    outcomes = [
        _read(f"{what} Python client, batches", lambda: sum(len(batch) for batch in snapshot.batches()), records),
        _read(f"{what} Python client, record by record", lambda: sum(1 for _ in snapshot), records),
    ]
    outcomes.append(_live(node, worker, what, records))
    if importlib.util.find_spec("pyarrow") is None:
        return [*outcomes, not_measured(f"{what} Arrow", f"at least {_VISIBLE_HZ:,}", "no pyarrow")]
    return [*outcomes, _read(f"{what} Arrow", lambda: _arrow_rows(node, "dead", snapshot.at[0]), records)]


def _read(what: str, count: Callable[[], int], records: int) -> TargetOutcome:
    """The median of some times, behind a first one: both sides import what they need."""
    shown, took_s = count(), list[float]()
    for _ in range(_READ_TIMES):
        began_s = time.perf_counter()
        count()
        took_s.append(time.perf_counter() - began_s)
    rate_hz = shown / median(took_s)
    met = rate_hz >= _VISIBLE_HZ
    short = "" if met else f"{_VISIBLE_HZ / rate_hz:.1f} times too slow"
    figures = f"{rate_hz:,.0f} ({shown:,} of {records:,}; best {shown / min(took_s):,.0f})"
    return TargetOutcome(what, f"at least {_VISIBLE_HZ:,}", figures, met, short)


def _live(node: NodeProcess, worker: LoadWorker, what: str, records: int) -> TargetOutcome:
    """Through the live topic: the median of some passes."""
    shown, rates_hz = 0, list[float]()
    for number in range(_LIVE_TIMES):
        shown, took_s = worker.run(f"pass {number + 1} of the live topic", consume_live, node.kafka, _LIVE_TOPIC)
        rates_hz.append(shown / took_s)
    rate_hz = median(rates_hz)
    met = rate_hz >= _LIVE_HZ
    short = "" if met else f"{_LIVE_HZ / rate_hz:.1f} times too slow"
    figures = f"{rate_hz:,.0f} ({shown:,} of {records:,}; best {max(rates_hz):,.0f})"
    return TargetOutcome(f"{what} live topic, librdkafka", f"at least {_LIVE_HZ:,}", figures, met, short)


def _arrow_rows(node: NodeProcess, stream: str, at: int) -> int:
    from pyarrow import ipc

    connection = http.client.HTTPConnection(node.http, timeout=600)
    rows, following = 0, "0"
    while following:
        path = f"/v1/streams/{stream}/snapshot/records?at={at}&offset={following}&max_bytes={_PAGE_BYTES}"
        connection.request("GET", path, headers={"Accept": "application/vnd.apache.arrow.stream"})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != http.HTTPStatus.OK:
            raise RequestInvalid(f"{path}: {content.decode(errors='replace')}")
        rows += ipc.open_stream(content).read_all().num_rows
        following = answer.headers.get("Duramen-Next-Offset", "")
    connection.close()
    return rows


# -- restarting -------------------------------------------------------------------------------------


def _restarting(node: NodeProcess, client: Client, worker: LoadWorker, of: Amounts) -> list[TargetOutcome]:
    _create(client, "many", keyed=True)
    worker.run(f"{of.restart_keys:,} keys", fill_keys, node.kafka, "many", of.restart_keys)
    end = client.snapshot("many").at[0]
    wanted_s = _SLOW_RESTART_S if of.restart_keys >= _MANY_KEYS else _RESTART_S
    opened_s: dict[str, float] = {}
    for how in ("stop", "kill"):
        if how == "stop":
            node.stop()
        else:
            node.kill()
        node.start()
        opened_s[how] = _until_open(node, "many", end)
    name = f"{of.restart_keys:,} keys: from ready to snapshots at the end, after a"
    return [at_most(f"{name} {how}", took_s, wanted_s, "s") for how, took_s in opened_s.items()]


def _until_open(node: NodeProcess, stream: str, end: int) -> float:
    began_s = time.monotonic()
    connection = http.client.HTTPConnection(node.http, timeout=600)
    while time.monotonic() < began_s + 600:
        try:
            found: Sequence[Any] = _get(connection, f"/v1/streams/{stream}/snapshot")["partitions"]
        except RequestInvalid:
            time.sleep(0.005)  # the view is being loaded
            continue
        if found[0]["at"] >= end:
            break
    connection.close()
    return time.monotonic() - began_s
