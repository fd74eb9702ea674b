"""Simulated clusters find planted bugs, the witness unchanged: by the known seed, or by one of those nearby.

Where the code changes, seeds do other things: the long hunt says which ones find the bugs then. Where a bug shows only
in a situation that is rare, those seeds are looked at first in which the fault that makes it comes most often.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

import pytest
from tests.sim.cluster.planted import BUGS
from tests.sim.planted import Bug, planted

from duramen.sim.cluster.running import run_one
from duramen.sim.cluster.world import World

MOST_SEEDS: Final = 1_000
NEARBY: Final = range(1, 61)

FOUND_BY: Final = {
    "cut-to-high-watermark": 1,
    "acknowledge-own": 2,
    "report-written": 1,
    "elect-anybody": 1,
    "show-all": 4,
    "take-any-first-sequence": 1,
    "on-committed": 1,
    "vote-blank": 754,
    "stale-in-sync": 16,
    "any-epoch": 487,
    "commit-earlier": 813,
    "count-written": 238,
    "vote-twice": 978,
    "send-anywhere": 171,
    "always-commit": 3,
    "show-open": 3,
    "store-here": 5,
    "take-any": 5,
    "tell-unstored": 20,
    "lag-since-last-fetch": 3,
    "serve-alone": 1,
    "lead-unwritable": 1,
    "stay-out": 1,
}

MADE_BY: Final = {
    "vote-blank": "majority that forgets",
    "any-epoch": "who is behind leads",
    "commit-earlier": "controllers end at once",
    "count-written": "power loss",
    "vote-twice": "contested election",
    "send-anywhere": "slow disk",
}
"""The fault that makes the situation in which a bug shows."""


def likely(bug: Bug) -> Iterator[int]:
    """Seeds that may find a bug, the most likely first."""
    if bug.name not in MADE_BY:
        yield from NEARBY
        return
    shares = {seed: World(seed).faults.shares.get(MADE_BY[bug.name], 0.0) for seed in range(1, MOST_SEEDS + 1)}
    yield from sorted(shares, key=lambda seed: -shares[seed])[: len(NEARBY)]


def hunt(bug: Bug, seeds: Iterable[int]) -> int | None:
    """The first seed that breaks a promise with the bug; that nothing goes on any more is not enough."""
    with planted(bug):
        for seed in seeds:
            outcome = run_one(seed)
            if outcome.broken and not outcome.stuck:
                return seed
    return None


def bug_of(name: str) -> Bug:
    return next(bug for bug in BUGS if bug.name == name)


@pytest.mark.parametrize("name", FOUND_BY)
def test_the_seed_that_found_a_bug_finds_it_again(name: str) -> None:
    assert hunt(bug_of(name), chain([FOUND_BY[name]], likely(bug_of(name)))) is not None


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_it_is_found_within_so_many_seeds(bug: Bug) -> None:
    found = hunt(bug, range(1, MOST_SEEDS + 1))
    print(f"{bug.name}: seed {found}")
    assert found is not None
