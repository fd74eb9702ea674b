"""Retention by policy of topics that nobody reads: as a model has it, a dict of lists."""

import random
from typing import Any, Final

import pytest
from tests.service.inventory import ACCOUNT, InventoryTopics

from duramen.base.catalogue.queues import QUEUE_RETENTION
from duramen.coordinators.inventory.retention import InventoryRetention
from duramen.coordinators.inventory.shards import InventoryShards
from duramen.sim.broker import CallbackResult

PATHS = ("acme/dev/a", "acme/dev/b", "acme/prod/c", "bolt/dev/d")
NAMESPACES = ("acme/dev", "acme/prod", "bolt/dev", "bolt/prod")
STEP_MS = 10_000
VALUES: dict[str, tuple[Any, ...]] = {
    "retention.ms": (None, -1, 15_000, 45_000, 75_000),
    "retention.bytes": (None, -1, 300, 1000),
    "retention.records": (None, -1, 0, 3, 10),
}


class Checked:
    """Topics, and what is to be in them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.node = InventoryTopics(seed)
        self.topics: dict[str, list[tuple[int, bytes]]] = {}
        for path in PATHS:
            self.node.create(path)
            self.topics[path] = []
        self.own: dict[str, dict[str, Any]] = {}

    def kept(self, path: str, name: str) -> int:
        parts = path.split("/")
        for count in (3, 2, 1, 0):
            value = self.own.get("/".join(parts[:count]), {}).get(name)
            if value is not None:
                return int(value)
        return -1

    def step(self) -> None:
        do, path = self.chance.random(), self.chance.choice(sorted(self.topics))
        if do < 0.5:
            values = [bytes(self.chance.randrange(200)) for _ in range(self.chance.randrange(1, 5))]
            assert self.node.put(path, *values) is None
            self.topics[path] += [(self.node.hand.clock.wall_ms(), value) for value in values]
        elif do < 0.8:
            where = self.chance.choice(("", "acme", "bolt", *NAMESPACES, path))
            name = self.chance.choice(QUEUE_RETENTION)
            value = self.chance.choice(VALUES[name])
            self.node.set(where, **{name: value})
            self.own.setdefault(where, {})[name] = value
        elif do < 0.9:
            new = f"{self.chance.choice(NAMESPACES)}/{self.chance.randrange(1 << 30)}"
            self.node.move(path, new)
            self.topics[new] = self.topics.pop(path)
            self.own[new] = self.own.pop(path, {})
        elif do < 0.93:
            self.interrupt(path)
        elif do < 0.97:
            self.node.hand.restart()
        else:
            self.node.hand.crash(self.chance.randrange(1000))
        self.node.hand.settle()

    def interrupt(self, path: str) -> None:
        """A crash while a topic's own policies are changed: its records are told what was stored."""
        hand, answer = self.node.hand, CallbackResult[Any]()
        changes = {name: self.chance.choice(VALUES[name]) for name in QUEUE_RETENTION}
        self.node.inventory.policies.change(ACCOUNT, path.split("/"), changes, answer)
        for _ in range(self.chance.randrange(12)):
            hand.worker.run_soon()
            hand.worker.step(self.chance.choice(("sync", "disk", "rows")))
        hand.crash(self.chance.randrange(1000))
        hand.settle()
        self.own[path] = dict(self.node.inventory.policies.find(ACCOUNT, path.split("/")).own)
        self.pass_time()

    def pass_time(self) -> None:
        self.node.hand.advance(STEP_MS)
        now_ms = self.node.hand.clock.wall_ms()
        for path, found in self.topics.items():
            ms, most_bytes, most = (self.kept(path, name) for name in QUEUE_RETENTION)
            size = sum(64 + len(value) for _, value in found)
            while found and (
                (ms >= 0 and found[0][0] + ms <= now_ms) or 0 <= most < len(found) or 0 <= most_bytes < size
            ):
                size -= 64 + len(found.pop(0)[1])

    def check(self) -> None:
        for path, found in self.topics.items():
            assert self.node.values(path) == [value for _, value in found], path


@pytest.mark.parametrize("seed", range(3))
def test_topics_keep_what_policies_say_without_being_read(seed: int) -> None:
    run = Checked(seed)
    for _ in range(12):
        for _ in range(run.chance.randrange(1, 6)):
            run.step()
        run.pass_time()
        run.check()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 150))
def test_they_do_for_many_seeds(seed: int) -> None:
    test_topics_keep_what_policies_say_without_being_read(seed)


_own: Final = InventoryShards.own


def _arrives_alone(self: Any, key: Any, namespace: int, own: Any, done: Any) -> None:
    """Records are not told of the new namespace."""
    if own is None:
        done(None)
    else:
        _own(self, key, namespace, own, done)


def _is_not_told_again(_: Any) -> None:
    """What topics say is not told after a stop."""


@pytest.mark.parametrize(
    ("owner", "name", "planted", "seeds"),
    [
        (InventoryShards, "own", _arrives_alone, range(126, 130)),
        (InventoryRetention, "resume", _is_not_told_again, range(122, 128)),
    ],
)
def test_planted_bugs_are_found(
    owner: type, name: str, planted: Any, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, planted)
    for seed in seeds:
        try:
            test_topics_keep_what_policies_say_without_being_read(seed)
        except AssertionError:
            return
    pytest.fail(f"{name} may be wrong without anybody seeing it")
