"""The inventory of simulated clusters keeps its promises, and the clients find planted bugs."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final

import pytest
from tests.coordinators.inventory.test_planted import ask_nobody
from tests.sim.cluster.modes import hunt, keeps_promises
from tests.sim.planted import Bug, Place

from duramen.base.ports import StateRows
from duramen.coordinators.inventory import changing, pages
from duramen.coordinators.inventory.cluster import policies
from duramen.coordinators.inventory.quotas import InventoryQuotas
from duramen.inventory import machine
from duramen.inventory.rows import ARRIVED, NameRow
from duramen.queues.usage import OwnerTotals, UsagePage

Original = Callable[..., Any]

SEEDS: Final = (1,)
LONG_SEEDS: Final = range(1, 201)
NEARBY: Final = range(1, 41)


def _keep_old_name(_: Original) -> Original:
    def _arrive(self: Any) -> None:
        row = NameRow(ARRIVED, self._pending.key)
        self._end_at(self._target, row, self._arriving, lambda: self._end(self._row))

    return _arrive


def _create_again(_: Original) -> Original:
    def _existing(namespace: int, names: Sequence[bytes], rows: StateRows) -> dict[bytes, bytes]:
        del namespace, names, rows
        return {}

    return _existing


def _skip_longer_names(_: Original) -> Original:
    def after(name: bytes) -> bytes:
        return name[:-1] + bytes((name[-1] + 1,))

    return after


def _end_before_records(_: Original) -> Original:
    def _arrive(self: Any) -> None:
        self._end_arrival()

    return _arrive


def _count_twice(right: Original) -> Original:
    def take(self: Any, shard: Any, page: UsagePage) -> None:
        if self.known(shard).life != page.life:
            self._of.pop(shard, None)
        right(self, shard, page)

    return take


def _count_own(_: Original) -> Original:
    def _counted_before(self: Any, scope: Any) -> int | None:
        count: int | None = self._most.get(scope)
        return count

    return _counted_before


BUGS: Final = (
    Bug("old-name", "", (Place(changing.Change, "_arrive", _keep_old_name),), "a moved topic is found where it was"),
    Bug("create-again", "", (Place(machine, "_existing", _create_again),), "a bulk event comes again with new ids"),
    Bug("skip-names", "", (Place(pages, "after", _skip_longer_names),), "a page skips a name"),
    Bug(
        "effective-early",
        "",
        (Place(policies.ClusterPolicies, "when_effective", ask_nobody),),
        "a policy is told to be effective before all nodes have confirmed it",
    ),
    Bug(
        "old-retention",
        "",
        (Place(changing.Change, "_arrive", _end_before_records),),
        "retention of its old namespace drops entries of a moved topic",
    ),
    Bug(
        "bytes-twice",
        "",
        (Place(OwnerTotals, "take", _count_twice),),
        "bytes of a shard are counted again when it has another leader",
    ),
    Bug(
        "own-topics",
        "",
        (Place(InventoryQuotas, "_counted_before", _count_own),),
        "a node does not count the topics that others create",
    ),
)

FOUND_BY: Final = {
    "old-name": 1, "create-again": 1, "skip-names": 1, "effective-early": 2, "old-retention": 5, "bytes-twice": 3,
    "own-topics": 2,
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_the_inventory_keeps_its_promises(seed: int) -> None:
    keeps_promises(seed, inventory=True)


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_seed_that_found_a_bug_finds_it_again(bug: Bug) -> None:
    assert hunt(bug, chain([FOUND_BY[bug.name]], NEARBY), inventory=True) is not None


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_the_inventory_of_many_clusters_keeps_its_promises(seed: int) -> None:
    test_the_inventory_keeps_its_promises(seed)
