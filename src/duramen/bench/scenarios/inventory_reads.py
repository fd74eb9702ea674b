"""Lookups in an inventory, over HTTP, with Kafka's Metadata and in the view itself; pages; searches."""

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import psutil

from duramen.bench.load.inventory import TENANT, some_names
from duramen.client.api.client import Client
from duramen.client.connection import BrokerConnection
from duramen.codec.kafka.versions import ApiKey
from duramen.coordinators.runtime.layout import LogRows, all_stored
from duramen.host.rocksdb import RocksViewStore
from duramen.inventory.reading import InventoryRows
from duramen.inventory.rows import TOTAL, count_key
from duramen.node.process import NodeProcess

__all__ = ["NAMES", "PAGE", "Timed", "read_inventory", "read_view"]

NAMES: Final = 50
"""Those of one request."""
PAGE: Final = 100
"""Topics of one page."""

_DRAWN: Final = 300
_DRAWN_OF_VIEW: Final = 20_000
_MEASURE_S: Final = 5.0
_NULL_ID: Final = UUID(int=0)
_VIEW_CACHE_BYTES: Final = 64 << 20
_TIMEOUT_S: Final = 30.0


class Timed(NamedTuple):
    """How long each of many requests took, one after another, and the processor's time of the node for one."""

    what: str
    taken_s: Sequence[float]
    cpu_us: float

    def percentile_ms(self, share: float) -> float:
        """That of the requests' times."""
        return 1000 * sorted(self.taken_s)[int(share * (len(self.taken_s) - 1))]

    @property
    def each_second(self) -> float:
        """Requests of one client each second."""
        return len(self.taken_s) / sum(self.taken_s)


def _timed(what: str, act: Callable[[], None], process: psutil.Process) -> Timed:
    taken_s, before, end_s = list[float](), process.cpu_times(), time.perf_counter() + _MEASURE_S
    while (began_s := time.perf_counter()) < end_s:
        act()
        taken_s.append(time.perf_counter() - began_s)
    after = process.cpu_times()
    cpu_s = after.user + after.system - before.user - before.system
    return Timed(what, taken_s, 1e6 * cpu_s / len(taken_s))


class _Asker:
    """Requests about names that are drawn from all there are. Names are made up before the clock runs."""

    def __init__(self, client: Client, kafka: BrokerConnection, namespaces: int) -> None:
        self._chance, self._inventory, self._kafka = random.Random(7), client.inventory, kafka
        self._namespaces = namespaces
        self._known = [self._drawn() for _ in range(_DRAWN)]

    def _drawn(self) -> tuple[int, list[str]]:
        number = self._chance.randrange(self._namespaces)
        return number, some_names(number, NAMES, self._chance)

    def look_up(self) -> None:
        number, names = self._chance.choice(self._known)
        if None in self._inventory.lookup(f"{TENANT}/n{number}", names):
            raise AssertionError("a topic that was made is not found")

    def metadata(self) -> None:
        topics = []
        for _ in range(NAMES):
            number, names = self._chance.choice(self._known)
            name = f"{TENANT}.n{number}.{self._chance.choice(names)}"
            topics.append({"name": name, "topic_id": _NULL_ID})
        answer = self._kafka.request(ApiKey.METADATA, {"topics": topics, "allow_auto_topic_creation": False})
        if any(topic["error_code"] for topic in answer["topics"]):
            raise AssertionError("a topic that was made is unknown to Kafka clients")

    def page(self) -> None:
        prefix = f"device-{self._chance.randrange(16):x}"
        scope = f"{TENANT}/n{self._chance.randrange(self._namespaces)}"
        if len(self._inventory.search_page(scope, prefix=prefix, limit=PAGE).topics) != PAGE:
            raise AssertionError("a page has fewer topics than there are")

    def search(self) -> None:
        scope = f"{TENANT}/n{self._chance.randrange(self._namespaces)}"
        glob = f"device-{self._chance.randrange(256):02x}*.telemetry"
        self._inventory.search_page(scope, glob=glob, limit=PAGE)


def read_inventory(client: Client, node: NodeProcess, namespaces: int) -> list[Timed]:
    """Requests of one client, one after another."""
    process = psutil.Process(node.pid)
    host, _, port = node.kafka.rpartition(":")
    kafka = BrokerConnection(host, int(port), client_id="bench", timeout_s=_TIMEOUT_S)
    try:
        asker = _Asker(client, kafka, namespaces)
        return [
            _timed(what, act, process)
            for what, act in (
                (f"{NAMES} names of a namespace looked up over HTTP", asker.look_up),
                (f"Metadata of {NAMES} names", asker.metadata),
                (f"a page of {PAGE} names over HTTP", asker.page),
                ("a search by glob in a namespace over HTTP", asker.search),
            )
        ]
    finally:
        kafka.close()


def read_view(directory: Path, namespaces: int) -> tuple[Timed, Timed]:
    """Names looked up in the rows of a node that is stopped: one by one, and as many at once as a request has."""
    store = RocksViewStore(str(directory / "coordinators" / "rows"), _VIEW_CACHE_BYTES)
    try:
        shards: list[Any] = [
            LogRows(store, log, stored.generation) for log, stored in sorted(all_stored(store).items())
        ]
        rows = InventoryRows([one for one in shards if one.get(count_key(TOTAL)) is not None], lambda _: True)
        chance, drawn = random.Random(11), list[tuple[int, bytes]]()
        for _ in range(_DRAWN_OF_VIEW // NAMES):
            number = chance.randrange(namespaces)
            drawn += [(number + 1, name.encode()) for name in some_names(number, NAMES, chance)]
        chance.shuffle(drawn)
        together = [partial(rows.find_all, drawn[at : at + NAMES]) for at in range(0, len(drawn), NAMES)]
        return (
            _timed_here("names looked up in the view", [partial(rows.find, *one) for one in drawn]),
            _timed_here(f"the same, {NAMES} at once", together),
        )
    finally:
        store.close()


def _timed_here(what: str, acts: Sequence[Callable[[], object]]) -> Timed:
    for act in acts:  # into the page cache
        if act() is None:
            raise AssertionError("a topic that was made is not in the view")
    taken_s, before_s = list[float](), time.process_time()
    for act in acts:
        began_s = time.perf_counter()
        act()
        taken_s.append(time.perf_counter() - began_s)
    return Timed(what, taken_s, 1e6 * (time.process_time() - before_s) / len(acts))
