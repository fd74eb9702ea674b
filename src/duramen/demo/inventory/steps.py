"""The steps of the inventory demo, from an empty directory to the report."""

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
from duramen.client.api.client import connect
from duramen.client.api.inventory.inventory import Inventory
from duramen.demo import report
from duramen.demo.directory import DemoDirectory
from duramen.demo.inventory.names import IN_NAMESPACE, DemoNamespace, demo_namespaces, demo_topics
from duramen.demo.inventory.picture import DemoMark, draw
from duramen.demo.inventory.traffic import PRODUCERS, DemoTopic, GroupMember, RecordProducer, read_all
from duramen.demo.page import STYLE
from duramen.demo.screen import Screen
from duramen.node.process import NodeProcess

__all__ = ["InventoryDemo"]

_CLIENTS: Final = 2
_LOADED: Final = "topics"
_SAMPLED: Final = 200  # namespaces
_LOOKED_UP: Final = 50
_RECORDS: Final = "records"
_TOPICS_READ: Final = "topics"
_USED_SHARE: Final = 100
_FEWEST_USED: Final = 300
_CHANGED_SHARE: Final = 10
_WATCHED: Final = 100
_PAGES: Final = 100
_SEE_S: Final = 0.25
_LOOK_S: Final = 0.01
_AT_ONCE: Final = 200
_KILL_SHARE: Final = 4


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
        self._chance_of_topics = random.Random(2)
        self._sights = list[_Sight]()
        self._lines = list[tuple[str, str]]()
        self._ids: dict[str, str] = {}
        self._marks = list[DemoMark]()
        self._acknowledged: Sequence[tuple[float, float]] = ()

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
                topics = self._picked()
                producer, member = RecordProducer(self._node.kafka), GroupMember(self._node.kafka, topics[:_WATCHED])
                with member.reading():
                    self._produce(producer, topics)
                    moved = self._change(client.inventory, producer, topics)
                    self._kill(producer, topics[: max(_FEWEST_USED, len(topics) // _KILL_SHARE)])
            self._acknowledged = producer.acknowledged
            self._follow(member)
            self._check(moved)
            self._consume(topics)
            self._sizes()
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

    def _picked(self) -> list[DemoTopic]:
        """Topics that Kafka clients use, picked at random."""
        count = min(len(self._ids), max(_FEWEST_USED, self._topics // _USED_SHARE))
        return [DemoTopic(at, path) for at, path in enumerate(self._chance.sample(sorted(self._ids), count))]

    @contextmanager
    def _bar(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        with self._screen.bars() as bars:
            bars.add(what, total)
            yield lambda count: bars.show(what, count)

    def _produce(self, producer: RecordProducer, topics: Sequence[DemoTopic]) -> None:
        self._screen.step(f"{PRODUCERS} Kafka producers write to {len(topics):,} topics picked at random")
        began_s = time.perf_counter()
        with self._bar(_RECORDS, len(topics)) as show:
            producer.send(topics, show)
        rate = len(topics) / (time.perf_counter() - began_s)
        taken_s = [latency_s for _, latency_s in producer.acknowledged]
        self._tell("first records", f"{rate:,.0f} topics/s; acknowledged in {_percentiles(taken_s)}")

    def _change(self, inventory: Inventory, producer: RecordProducer, topics: Sequence[DemoTopic]) -> list[_Moved]:
        changed = topics[: max(_WATCHED, len(topics) // _CHANGED_SHARE)]
        self._screen.step(f"{len(changed):,} of these topics renamed and moved while producers write, half aliased")
        moved, taken_s, failed = list[_Moved](), list[float](), list[DuramenError]()

        def change() -> None:
            try:
                for topic in changed:
                    began_s = time.perf_counter()
                    moved.append(self._move(inventory, topic))
                    taken_s.append(time.perf_counter() - began_s)
            except DuramenError as error:
                failed.append(error)

        began_s, before, thread = time.perf_counter(), len(producer.acknowledged), Thread(target=change)
        thread.start()
        while thread.is_alive():
            producer.send(self._chance_of_topics.sample(topics, _AT_ONCE), lambda _: None)
        thread.join()
        if failed:
            raise failed[0]
        self._marks.append(DemoMark("topics are renamed and moved", began_s, began_s + sum(taken_s)))
        self._tell("moves", f"{len(moved):,}, no data copied; each takes {_percentiles(taken_s)}")
        count = len(producer.acknowledged) - before
        self._tell("meanwhile", f"{count:,} records acknowledged; {producer.renamed:,} came to an old name first")
        return moved

    def _move(self, inventory: Inventory, topic: DemoTopic) -> _Moved:
        to, alias, before = self._chance.choice(self._namespaces), topic.index % 2 == 0, topic.path
        now = f"{to.path}/moved-{topic.index:06}.state"
        if inventory.move_topic(before, now, keep_alias=alias).id != self._ids[before]:
            raise DemoFailed(f"{before} has another id as {now}")
        topic.path = now
        return _Moved(before, now, self._ids[before], alias)

    def _kill(self, producer: RecordProducer, topics: Sequence[DemoTopic]) -> None:
        self._screen.step("kill -9 while producers write")
        failed = list[DuramenError]()

        def send() -> None:
            try:
                with self._bar(_RECORDS, len(topics)) as show:
                    producer.send(topics, show)
            except DuramenError as error:
                failed.append(error)

        before, thread = len(producer.acknowledged), Thread(target=send)
        thread.start()
        while thread.is_alive() and len(producer.acknowledged) < before + len(topics) // 3:
            time.sleep(_LOOK_S)
        self._node.kill()
        began_s = time.perf_counter()
        self._node.start()
        with connect(self._node.http) as client:
            client.inventory.topic_by_id(next(iter(self._ids.values())))
        ended_s = time.perf_counter()
        self._marks.append(DemoMark("kill -9 and restart", began_s, ended_s))
        self._tell("restart", f"first answer {report.seconds_text(ended_s - began_s)} after the start")
        thread.join()
        if failed:
            raise failed[0]
        again_s = next(at_s for at_s, _ in producer.acknowledged if at_s > began_s)
        self._tell("clients", f"first record acknowledged {report.seconds_text(again_s - began_s)} after the start")

    def _follow(self, member: GroupMember) -> None:
        read = sum(map(len, member.numbers.values()))
        twice = read - sum(len(set(numbers)) for numbers in member.numbers.values())
        self._tell(
            "group", f"{len(member.numbers):,} topics read through all of that, under {member.subscriptions:,}"
            f" subscriptions: {read:,} records, {twice:,} of them twice"
        )  # fmt: skip

    def _consume(self, topics: Sequence[DemoTopic]) -> None:
        self._screen.step("A Kafka consumer reads every record, under the name that its topic has now")
        began_s = time.perf_counter()
        with self._bar(_TOPICS_READ, len(topics)) as show:
            found = read_all(self._node.kafka, topics, show)
        took_s, again = time.perf_counter() - began_s, 0
        for topic in topics:
            numbers = found.get(topic.index, [])
            if [*dict.fromkeys(numbers)] != [*dict.fromkeys(topic.acknowledged)]:
                raise DemoFailed(f"{topic.path} does not have the records that were acknowledged, in their order")
            again += len(numbers) - len(set(numbers))
        count = sum(map(len, found.values()))
        said = f"{count:,} records of {len(topics):,} topics in {report.seconds_text(took_s)}: all acknowledged ones"
        self._tell("consumed", f"{said}; {again:,} are there twice, sent again after the crash")

    def _sizes(self) -> None:
        sizes = [self._directory.bytes_of(self._directory.node / name) for name in ("coordinators/rows", "logs", "wal")]
        views, logs, wal = map(report.bytes_text, sizes)
        each = sizes[0] / self._topics
        self._tell("on disk", f"{views} of views, {each:.1f} B a topic; {logs} of logs and {wal} of WAL")

    def _check(self, moved: Sequence[_Moved]) -> None:
        self._screen.step("Everything checked")
        with connect(self._node.http) as client:
            self._check_names(client.inventory, moved)

    def _check_names(self, inventory: Inventory, moved: Sequence[_Moved]) -> None:
        counted = sum(one.topics for tenant in inventory.tenants() for one in inventory.namespaces(tenant.name))
        if counted != self._topics:
            raise DemoFailed(f"there are {counted:,} topics, not {self._topics:,}")
        for one in moved:
            found = inventory.topic(one.now)
            by_id = inventory.topic_by_id(one.id)
            if (found.id, by_id.path) != (one.id, one.now) or _reaches(inventory, one.before) != one.alias:
                raise DemoFailed(f"{one.before}, which is {one.now} now, is not what it was")
        by_namespace: dict[str, list[str]] = {}
        for path in self._ids.keys() - {one.before for one in moved}:
            namespace, _, name = path.rpartition("/")
            by_namespace.setdefault(namespace, []).append(name)
        for namespace, names in by_namespace.items():
            for name, topic in zip(names, inventory.lookup(namespace, names), strict=True):
                if topic is None or topic.id != self._ids[f"{namespace}/{name}"]:
                    raise DemoFailed(f"{namespace}/{name} is not what it was")
        self._tell("checked", f"{counted:,} topics, {len(self._ids):,} ids, {len(moved):,} moves: all is there")

    # -- the report ---------------------------------------------------------------------------------

    def _report(self) -> None:
        picture, page = self._directory.path / "inventory.png", self._directory.path / "inventory.html"
        sights = [(one.at_s, one.topics, one.memory_bytes) for one in self._sights]
        draw(picture, sights, self._acknowledged, self._marks)
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


def _reaches(inventory: Inventory, path: str) -> bool:
    try:
        return inventory.topic(path).alias
    except TopicNotFound:
        return False


def _percentiles(taken_s: Sequence[float]) -> str:
    in_order = sorted(taken_s)
    p50, p99 = (report.seconds_text(report.percentile(in_order, share)) for share in (0.5, 0.99))
    return f"p50 {p50}, p99 {p99}"
