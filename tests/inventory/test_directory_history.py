"""A node's copy of the directory is what its leader has, whatever it has missed."""

import random

import pytest

from duramen.inventory.directory import Directory
from duramen.inventory.directory_history import DirectoryCopy, DirectoryHistory
from duramen.inventory.events import (
    DirectoryEvent,
    NamespacePut,
    NamespaceRemoved,
    TenantPut,
    TenantRemoved,
    encode_event,
)


class Leader:
    """The leader of shard 0."""

    def __init__(self, epoch: int, events: list[DirectoryEvent]) -> None:
        self.epoch = epoch
        self.directory = Directory()
        self.history = DirectoryHistory()
        for event in events:
            self.directory.apply(event)
        self.history.loaded()

    def add(self, event: DirectoryEvent) -> None:
        self.directory.apply(event)
        self.history.add(encode_event(event))

    def tell(self, copy: DirectoryCopy) -> bool:
        asked = copy.state
        return copy.take(asked, self.history.page(self.epoch, self.directory, asked))


def every(copy: DirectoryCopy) -> list[DirectoryEvent]:
    return [] if copy.directory is None else list(copy.directory.every())


def some_event(chance: random.Random) -> DirectoryEvent:
    tenant, namespace = chance.randrange(1, 6), chance.randrange(1, 20)
    return chance.choice(
        (
            TenantPut(tenant, "default", f"t{tenant}-{chance.randrange(2)}", 0, {}),
            NamespacePut(namespace, tenant, f"n{namespace}", 0, {}),
            TenantRemoved(tenant),
            NamespaceRemoved(namespace),
        )
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_copy_follows_leaders(seed: int) -> None:
    chance, copy, events = random.Random(seed), DirectoryCopy(), list[DirectoryEvent]()
    leader = Leader(0, events)
    for _ in range(60):
        for _ in range(chance.randrange(5)):
            events.append(some_event(chance))
            leader.add(events[-1])
        if chance.random() < 0.2:
            leader = Leader(leader.epoch + 1, events)
        while not leader.tell(copy):
            pass
        assert every(copy) == list(leader.directory.every())


def test_a_large_directory_comes_in_parts_that_fit_together() -> None:
    leader = Leader(1, [TenantPut(number, "default", f"t{number}", 0, {}) for number in range(1, 25_001)])
    copy = DirectoryCopy()
    assert not leader.tell(copy)
    assert every(copy) == []
    leader.add(TenantRemoved(7))
    parts = 1
    while not leader.tell(copy):
        parts += 1
        assert every(copy) == []
    assert parts > 1
    assert every(copy) == list(leader.directory.every())


def test_a_copy_stays_until_the_next_one_is_complete() -> None:
    tenants: list[DirectoryEvent] = [TenantPut(number, "default", f"t{number}", 0, {}) for number in range(1, 15_001)]
    leader, copy = Leader(1, tenants), DirectoryCopy()
    while not leader.tell(copy):
        pass
    before, leader = every(copy), Leader(2, [*tenants, TenantRemoved(7)])
    while not leader.tell(copy):
        assert every(copy) == before
    assert every(copy) == list(leader.directory.every()) != before


def test_an_answer_that_others_were_faster_than_changes_nothing() -> None:
    leader, copy = Leader(1, []), DirectoryCopy()
    asked = copy.state
    late = leader.history.page(1, leader.directory, asked)
    leader.add(TenantPut(1, "default", "t", 0, {}))
    assert leader.tell(copy)
    assert copy.take(asked, late)
    assert every(copy) == [TenantPut(1, "default", "t", 0, {})]
