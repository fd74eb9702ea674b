"""The steps of the inventory's demo, one after the other, from an empty directory to the report."""

import base64
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from threading import Event, Lock, Thread
from typing import Final, NamedTuple

import psutil

from duramen.base.errors import DemoFailed, DuramenError, TopicNotFound
from duramen.client.api.client import Client, connect
from duramen.client.api.inventory import Inventory
from duramen.demo import report
from duramen.demo.directory import DemoDirectory
from duramen.demo.inventory.names import IN_NAMESPACE, DemoNamespace, demo_namespaces, demo_topics
from duramen.demo.inventory.picture import draw
from duramen.demo.page import STYLE
from duramen.demo.screen import Screen
from duramen.node.process import NodeProcess

__all__ = ["InventoryDemo"]

_CLIENTS: Final = 2
_LOADED: Final = "topics"
_SAMPLED: Final = 200  # namespaces
_LOOKED_UP: Final = 50
_CHANGED: Final = 1000
_PAGES: Final = 100
_SEE_S: Final = 0.25


class _Sight(NamedTuple):
    at_s: float
    topics: int
    memory_bytes: int


class _Moved(NamedTuple):
    before: str
    now: str
    id: str
    alias: bool


class InventoryDemo:
    """The demo with so many topics in a directory. Every step may raise DuramenError."""

    def __init__(self, screen: Screen, directory: DemoDirectory, topics: int) -> None:
        self._screen = screen
        self._directory = directory
        self._namespaces = demo_namespaces(topics)
        self._topics = len(self._namespaces) * IN_NAMESPACE
        self._node = NodeProcess(directory.node)
        self._chance = random.Random(1)
        self._sights = list[_Sight]()
        self._lines = list[tuple[str, str]]()
        self._ids: dict[str, str] = {}

    def run(self) -> None:
        """All of it. The node ends with it."""
        began_s = time.perf_counter()
        self._screen.title(f"Duramen: an inventory of {self._topics:,} topics on one node")
        with self._node:
            self._make()
            self._load()
            with connect(self._node.http) as client:
                self._look_up(client.inventory)
                self._search(client.inventory)
                moved = self._change(client.inventory)
            self._kill(moved)
        self._tell("altogether", report.seconds_text(time.perf_counter() - began_s))
        self._report()

    def _tell(self, what: str, said: str) -> None:
        self._lines.append((what, said))
        self._screen.say(f"{what}: {said}")

    # -- the steps ----------------------------------------------------------------------------------

    def _make(self) -> None:
        self._screen.step("Tenants and namespaces")
        began_s = time.perf_counter()
        by_tenant: dict[str, list[str]] = {}
        for one in self._namespaces:
            by_tenant.setdefault(one.tenant, []).append(one.name)
        with connect(self._node.http) as client:
            client.inventory.create_tenants(list(by_tenant))
            for tenant, names in by_tenant.items():
                client.inventory.create_namespaces(tenant, names)
        took = report.seconds_text(time.perf_counter() - began_s)
        self._tell("tenants", f"{len(by_tenant):,} with {len(self._namespaces):,} namespaces, made in {took}")

    def _load(self) -> None:
        self._screen.step("Topics in bulk, each request durable and in the view before its answer")
        lock, done, failed = Lock(), [0], list[DuramenError]()

        def load(first: int, show: Callable[[int], None]) -> None:
            try:
                with connect(self._node.http) as client:
                    for one in self._namespaces[first::_CLIENTS]:
                        created = client.inventory.create_topics(one.path, demo_topics(one))
                        with lock:
                            done[0] += created.created
                            show(done[0])
            except DuramenError as error:
                failed.append(error)

        began_s = time.perf_counter()
        with self._seen(began_s, done), self._screen.bars() as bars:
            bars.add(_LOADED, self._topics)
            clients = [
                Thread(target=load, args=(first, lambda count: bars.show(_LOADED, count))) for first in range(_CLIENTS)
            ]
            for one in clients:
                one.start()
            for one in clients:
                one.join()
        if failed:
            raise failed[0]
        took_s = time.perf_counter() - began_s
        if done[0] != self._topics:
            raise DemoFailed(f"{done[0]:,} topics were made, not {self._topics:,}")
        memory = report.bytes_text(max(sight.memory_bytes for sight in self._sights))
        self._tell("load", f"{self._topics / took_s:,.0f} topics/s, {report.seconds_text(took_s)}; memory {memory}")

    @contextmanager
    def _seen(self, began_s: float, done: list[int]) -> Iterator[None]:
        """While this lasts, look from time to time how many there are, and what memory the node takes."""
        over, process = Event(), psutil.Process(self._node.pid)

        def see() -> None:
            while True:
                self._sights.append(_Sight(time.perf_counter() - began_s, done[0], process.memory_info().rss))
                if over.wait(_SEE_S):
                    return

        watcher = Thread(target=see)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _look_up(self, inventory: Inventory) -> None:
        self._screen.step("Lookups of names, drawn from all there are")
        taken_s = list[float]()
        for one in self._sample():
            names = self._chance.sample(demo_topics(one), _LOOKED_UP)
            began_s = time.perf_counter()
            found = inventory.lookup(one.path, names)
            taken_s.append(time.perf_counter() - began_s)
            for name, topic in zip(names, found, strict=True):
                if topic is None:
                    raise DemoFailed(f"{one.path}/{name} is not found")
                self._ids[f"{one.path}/{name}"] = topic.id
        if len(set(self._ids.values())) != len(self._ids):
            raise DemoFailed("two topics have one id")
        self._tell("lookups", f"{len(self._ids):,} names, all found; {_LOOKED_UP} names take {_percentiles(taken_s)}")

    def _sample(self) -> Sequence[DemoNamespace]:
        return [self._chance.choice(self._namespaces) for _ in range(_SAMPLED)]

    def _search(self, inventory: Inventory) -> None:
        self._screen.step("Searches by prefix, glob and pattern, in the order of names")
        taken_s = list[float]()
        for one in self._sample()[:_PAGES]:
            names = sorted(demo_topics(one))
            thing = names[0].partition("-")[0]
            prefix = f"{thing}-{self._chance.randrange(16):x}"
            began_s = time.perf_counter()
            page = inventory.search_page(one.path, prefix=prefix, limit=100)
            taken_s.append(time.perf_counter() - began_s)
            expected = [name for name in names if name.startswith(prefix)][: len(page.topics)]
            if [topic.name for topic in page.topics] != expected or not expected:
                raise DemoFailed(f"the page of {one.path} from {prefix} on is wrong")
        one = self._namespaces[-1]
        for query in ({"glob": "*-a?c*.alerts"}, {"pattern": "[a-z]+-a.c.*[.]alerts"}):
            found = [topic.name for topic in inventory.search(one.path, **query)]
            expected = [name for name in sorted(demo_topics(one)) if _is_alert(name)]
            if found != expected:
                raise DemoFailed(f"the search {query} in {one.path} is wrong")
        self._tell("pages", f"100 names take {_percentiles(taken_s)}")

    def _change(self, inventory: Inventory) -> list[_Moved]:
        self._screen.step(f"{_CHANGED:,} topics renamed and moved, half of them leaving an alias")
        moved, taken_s = list[_Moved](), list[float]()
        for number, before in enumerate(self._chance.sample(sorted(self._ids), min(_CHANGED, len(self._ids)))):
            to, alias = self._chance.choice(self._namespaces), number % 2 == 0
            now = f"{to.path}/moved-{number:06}.state"
            began_s = time.perf_counter()
            topic = inventory.move_topic(before, now, keep_alias=alias)
            taken_s.append(time.perf_counter() - began_s)
            moved.append(_Moved(before, now, self._ids[before], alias))
            if topic.id != self._ids[before]:
                raise DemoFailed(f"{before} has another id as {now}")
        self._tell("moves", f"{len(moved):,}, no data copied; each takes {_percentiles(taken_s)}")
        return moved

    def _kill(self, moved: Sequence[_Moved]) -> None:
        self._screen.step("kill -9, and everything checked")
        self._node.kill()
        began_s = time.perf_counter()
        self._node.start()
        with connect(self._node.http) as client:
            client.inventory.topic_by_id(moved[0].id)
            self._tell("restart", f"first answer {report.seconds_text(time.perf_counter() - began_s)} after the start")
            self._check(client, moved)
        sizes = [self._directory.bytes_of(self._directory.node / name) for name in ("coordinators/rows", "logs", "wal")]
        views, logs, wal = map(report.bytes_text, sizes)
        each = sizes[0] / self._topics
        self._tell("on disk", f"{views} of views, {each:.1f} B a topic; {logs} of logs and {wal} of WAL")

    def _check(self, client: Client, moved: Sequence[_Moved]) -> None:
        inventory = client.inventory
        counted = sum(one.topics for tenant in inventory.tenants() for one in inventory.namespaces(tenant.name))
        if counted != self._topics:
            raise DemoFailed(f"there are {counted:,} topics, not {self._topics:,}")
        for one in moved:
            found = inventory.topic(one.now)
            by_id = inventory.topic_by_id(one.id)
            if (found.id, by_id.path) != (one.id, one.now) or _reaches(inventory, one.before) != one.alias:
                raise DemoFailed(f"{one.before}, which is {one.now} now, is not what it was")
        gone = {one.before for one in moved}
        for path, lasting_id in self._ids.items():
            namespace, _, name = path.rpartition("/")
            if path not in gone and _id_of(inventory, namespace, name) != lasting_id:
                raise DemoFailed(f"{path} is not what it was")
        self._tell("checked", f"{counted:,} topics, {len(self._ids):,} ids, {len(moved):,} moves: all is there")

    # -- the report ---------------------------------------------------------------------------------

    def _report(self) -> None:
        picture, page = self._directory.path / "inventory.png", self._directory.path / "inventory.html"
        draw(picture, [(one.at_s, one.topics, one.memory_bytes) for one in self._sights])
        source = base64.b64encode(picture.read_bytes()).decode("ascii")
        title = f"An inventory of {self._topics:,} topics"
        facts = "".join(f"<dt>{escape(what)}</dt><dd>{escape(said)}</dd>" for what, said in self._lines)
        page.write_text(
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f"<title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
            f'<img alt="{title}" src="data:image/png;base64,{source}">\n<dl>{facts}</dl>\n</body></html>\n'
        )
        self._screen.step("The report")
        self._screen.say(f"{self._directory.shown(page)} and {self._directory.shown(picture)}")


def _is_alert(name: str) -> bool:
    digits, _, kind = name.partition("-")[2].partition(".")
    return kind == "alerts" and digits[0] == "a" and digits[2] == "c"


def _id_of(inventory: Inventory, namespace: str, name: str) -> str | None:
    (found,) = inventory.lookup(namespace, [name])
    return None if found is None else found.id


def _reaches(inventory: Inventory, path: str) -> bool:
    try:
        return inventory.topic(path).alias
    except TopicNotFound:
        return False


def _percentiles(taken_s: Sequence[float]) -> str:
    in_order = sorted(taken_s)
    p50, p99 = (report.seconds_text(report.percentile(in_order, share)) for share in (0.5, 0.99))
    return f"p50 {p50}, p99 {p99}"
