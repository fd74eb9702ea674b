"""Simulated clusters with transactions on keyed streams: snapshots have each wholly or not, planted bugs are found."""

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, Final

import pytest
from tests.sim.cluster.modes import hunt, keeps_promises
from tests.sim.planted import Bug, Place

from duramen.coordinators.transaction.cluster import vectors
from duramen.coordinators.transaction.cluster.holds import CommitHolds
from duramen.keyed.cuts import Commits

Original = Callable[..., Any]

LONG_SEEDS: Final = range(1, 101)
NEARBY: Final = range(1, 31)
SLOW: Final = ("markers-under-way",)
"""Bugs that are found late in a run."""


def _take_ends(_: Original) -> Original:
    def cut(partitions: Mapping[Any, Commits], is_in: Callable[[int], bool]) -> dict[Any, int]:
        del is_in
        return {at: one.high_watermark for at, one in partitions.items()}

    return cut


def _hold_nothing(_: Original) -> Original:
    def holds(self: CommitHolds, prepared: object) -> bool:
        del self, prepared
        return False

    return holds


def _wait_for_nothing(_: Original) -> Original:
    def _unmarked(self: CommitHolds, waiter: object) -> bool:
        del self, waiter
        return False

    return _unmarked


BUGS: Final = (
    Bug(
        "cut-in-two", "a transaction cut in two",
        (Place(vectors, "cut", _take_ends), Place(CommitHolds, "holds", _hold_nothing)),
    ),
    Bug(
        "markers-under-way", "", (Place(CommitHolds, "_unmarked", _wait_for_nothing),),
        "answer that a transaction has its markers while some are on their way",
    ),
)  # fmt: skip

FOUND_BY: Final = {"cut-in-two": 5, "markers-under-way": 3}


@pytest.mark.parametrize(
    "bug", [pytest.param(bug, marks=pytest.mark.long) if bug.name in SLOW else bug for bug in BUGS],
    ids=[bug.name for bug in BUGS],
)  # fmt: skip
def test_the_seed_that_found_a_bug_finds_it_again(bug: Bug) -> None:
    assert hunt(bug, chain([FOUND_BY[bug.name]], NEARBY), stuck=False, keyed_transactions=True) is not None


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_snapshots_in_many_clusters_have_each_transaction_wholly_or_not(seed: int) -> None:
    keeps_promises(seed, keyed_transactions=True)
