"""What owners take over several shards, as a node hears it in pages: beside dicts of what the rows have."""

import random

import pytest

from duramen.queues import usage
from duramen.queues.owners import owner_key
from duramen.queues.usage import OwnerChanges, OwnerTotals
from duramen.sim.machine.views import MemoryViewStore


class Shard:
    """Rows of owners, and what was counted of them."""

    def __init__(self) -> None:
        self.rows = MemoryViewStore()
        self.bytes: dict[int, int] = {}
        self.epoch = 0
        self.changes = OwnerChanges()
        self.changes.load(self.rows)

    def write(self, owner: int, size: int) -> None:
        self.bytes[owner] = size
        key = owner_key(owner)
        self.rows.write([(key, size.to_bytes(8, "big"))] if size else [], [] if size else [key])
        self.changes.written([key])

    def lead_anew(self) -> None:
        self.epoch += 1
        self.changes = OwnerChanges()
        self.changes.load(self.rows)


@pytest.mark.parametrize("seed", range(20))
def test_totals_are_those_of_all_shards(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "_AT_ONCE", 3)
    chance, shards, told = random.Random(seed), [Shard() for _ in range(3)], dict[int, int]()

    def changed(owner: int, more: int) -> None:
        told[owner] = told.get(owner, 0) + more

    totals = OwnerTotals(changed)
    for _ in range(300):
        shard = chance.choice(shards)
        do = chance.random()
        if do < 0.7:
            shard.write(chance.randrange(1, 12), chance.choice((0, 1, 500, 1 << 40)))
        elif do < 0.75:
            shard.lead_anew()
        elif do < 0.78:
            shard.changes.load(shard.rows)
        else:
            number = shards.index(shard)
            page = totals.known(number)
            more = True
            while more:
                page = shard.changes.since(shard.rows, shard.epoch, page.life, page.version)
                assert len(page.bytes) <= 3
                totals.take(number, page)
                more = page.more
                if chance.random() < 0.2:
                    shard.write(chance.randrange(1, 12), 7)
    for number, shard in enumerate(shards):
        page = totals.known(number)
        while True:
            page = shard.changes.since(shard.rows, shard.epoch, page.life, page.version)
            totals.take(number, page)
            if not page.more:
                break
    for owner in range(1, 12):
        found = sum(shard.bytes.get(owner, 0) for shard in shards)
        assert (totals.bytes(owner), told.get(owner, 0)) == (found, found)


def test_a_page_that_comes_late_changes_nothing() -> None:
    shard, totals = Shard(), OwnerTotals(lambda _, __: None)
    shard.write(1, 10)
    late = shard.changes.since(shard.rows, 0, *totals.known(0)[:2])
    shard.write(1, 20)
    totals.take(0, shard.changes.since(shard.rows, 0, *totals.known(0)[:2]))
    totals.take(0, late)
    assert totals.bytes(1) == 20
