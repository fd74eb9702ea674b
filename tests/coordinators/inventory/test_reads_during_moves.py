"""Reads of a node whose rows are written by another thread meanwhile: each sees every topic under exactly one name."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from uuid import UUID

import pytest
from tests.coordinators.inventory.node import ACCOUNT, InventoryNode, at

from duramen.base.errors import TopicNotFound
from duramen.coordinators.inventory.moves import TopicMove
from duramen.coordinators.runtime.runtime import Runtime
from duramen.inventory.search import PageToken, TopicQuery
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.sim.machine.views import MemoryStateStore

T = TypeVar("T")

TOPICS = 24
NAMES = [f"acme/{namespace}/m{number}" for namespace in ("dev", "prod") for number in range(2 * TOPICS)]


class _Racing(MemoryStateStore):
    """Between two reads of a query the thread that writes rows may write some more of them."""

    def __init__(self, hand: ManualBroker, seed: int) -> None:
        super().__init__()
        self._hand = hand
        self._chance = random.Random(seed)
        self.races = False

    def _race(self) -> None:
        worker = self._hand.worker
        if self.races and worker.jobs["rows"] and self._chance.random() < 0.1:
            self.races = False  # the job's own reads are in the other thread
            worker.actions.append(worker.start("rows"))
            self.races = True

    def get(self, key: bytes) -> bytes | None:
        self._race()
        return super().get(key)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._race()
        return super().scan(first, end)


class _Moving:
    """A node on which topics move within and between two namespaces without end."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.node = InventoryNode(seed, shards=3, checkpoint_records=100_000)
        hand = self.node.hand
        hand.stop()
        hand.rows = self.rows = _Racing(hand, seed)  # rebuilt from the log, which is whole
        hand.start()
        self.node.create("acme/dev", *(f"m{number}" for number in range(TOPICS)))
        self.ids = {one.id for one in self.page()}
        assert len(self.ids) == TOPICS
        self.under_way = list[CallbackResult[Any]]()

    def page(self) -> Sequence[Any]:
        inventory = self.node.inventory
        return self.ask(lambda: inventory.search(ACCOUNT, "acme", "", TopicQuery(), PageToken(), 1000).topics)

    def ask(self, query: Callable[[], T]) -> T:
        """The result of a read, whenever it comes: until then the node goes on."""
        answer, worker = CallbackResult[T](), self.node.hand.worker
        self.node.inventory.read(query, answer)
        self.rows.races = False
        while not answer.calls:
            assert worker.actions or worker.step("rows")
            worker.run_soon()
        self.rows.races = True
        return answer.value

    def step(self) -> None:
        """Submit moves; then let some of the jobs run that the node has."""
        inventory, worker = self.node.inventory, self.node.hand.worker
        if sum(not one.calls for one in self.under_way) < 3:
            named = [one.path for one in self.page() if not one.alias]
            moves = [
                TopicMove(path, at(self.chance.choice(NAMES)), self.chance.random() < 0.2)
                for path in self.chance.sample(named, 6)
            ]  # fmt: skip
            answer: CallbackResult[Any] = CallbackResult()
            inventory.move_topics(ACCOUNT, moves, answer)
            self.under_way.append(answer)
        for _ in range(self.chance.randrange(4)):
            worker.step(self.chance.choice(("sync", "disk", "rows", "read")))
        worker.run_soon()

    def read(self) -> list[tuple[str, Counter[UUID]]]:
        """What kinds of reads show of topics, each while the rows change."""
        inventory = self.node.inventory
        self.rows.races = True
        try:
            page = Counter(one.id for one in self.page() if not one.alias)
            looked = self.ask(lambda: inventory.lookup_paths(ACCOUNT, [at(name) for name in NAMES]))
            names = Counter(one.id for one in looked if one is not None and not one.alias)
            singly = self.ask(self.singly)
            spaces = [self.node.namespace(path) for path in ("acme/dev", "acme/prod")]
            count = self.ask(lambda: sum(map(inventory.count, spaces)))
        finally:
            self.rows.races = False
        return [
            ("page", page), ("lookup", names), ("single lookups", singly),
            ("count", Counter(self.ids) if count == TOPICS else Counter()),
        ]  # fmt: skip

    def singly(self) -> Counter[UUID]:
        found = Counter[UUID]()
        for name in NAMES:
            try:
                one = self.node.inventory.find(ACCOUNT, at(name))
            except TopicNotFound:
                continue
            found[one.id] += not one.alias
        return +found

    def wrong(self, steps: int) -> list[str]:
        """The kinds of reads that show a topic under no name or two."""
        found = list[str]()
        for _ in range(steps):
            self.step()
            found += [kind for kind, ids in self.read() if ids != Counter(self.ids)]
        return found


@pytest.mark.parametrize("seed", range(4))
def test_a_read_during_moves_shows_each_topic_under_one_name(seed: int) -> None:
    moving = _Moving(seed)
    assert moving.wrong(100) == []
    assert sum(bool(one.calls) for one in moving.under_way) > 0


def test_planted_reads_of_rows_that_change_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(runtime: Runtime, stream: str, query: Callable[[], Any], tries: int = 1) -> tuple[Any, bool]:
        del runtime, stream, tries
        return query(), True

    monkeypatch.setattr(Runtime, "together", once)
    assert "page" in {kind for seed in range(2) for kind in _Moving(seed).wrong(100)}
