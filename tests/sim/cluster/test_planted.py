"""Simulated clusters find planted bugs, the witness unchanged: by the known seed, or by one of those nearby.

Where the code changes, seeds do other things: the long hunt says which ones find the bugs then, with every fault. The
short hunt for a bug that needs a rare situation injects only the faults of `MADE_BY`, which change what a seed does.
"""

from collections.abc import Collection, Iterable
from itertools import chain
from typing import Final

import pytest
from tests.sim.cluster.planted import BUGS
from tests.sim.planted import Bug, broken_by, planted

from duramen.sim.cluster.runs import run_one

MOST_SEEDS: Final = 1_000
NEARBY: Final = range(1, 61)
RARE: Final = range(1, 201)

FOUND_BY: Final = {
    "cut-to-high-watermark": 1,
    "acknowledge-own": 2,
    "report-written": 2,
    "elect-anybody": 4,
    "show-all": 3,
    "take-any-first-sequence": 19,
    "refuse-while-starting": 100,
    "on-committed": 1,
    "vote-blank": 12,
    "stale-in-sync": 7,
    "any-epoch": 3,
    "commit-earlier": 122,
    "count-written": 48,
    "vote-twice": 11,
    "send-anywhere": 23,
    "always-commit": 3,
    "show-open": 3,
    "store-here": 4,
    "take-any": 5,
    "tell-unstored": 4,
    "lag-since-last-fetch": 4,
    "serve-alone": 4,
    "coordinate-alone": 5,
    "never-yield": 2,
    "keep-members": 1,
    "keep-transactions": 1,
    "tell-of-gaps": 56,
    "elect-blank": 4,
    "lead-unwritable": 1,
    "stay-out": 1,
    "hide-damage": 6,
    "leave-damage": 3,
}

MADE_BY: Final = {
    "vote-blank": ("majority that forgets", "kill"),
    "any-epoch": ("who is behind leads", "slow network"),
    "commit-earlier": ("controllers end at once", "partition"),
    "count-written": ("slow disk", "power loss"),
    "vote-twice": ("contested election",),
    "refuse-while-starting": ("kill", "restart", "kill of a leader", "slow disk", "slow network"),
    "send-anywhere": ("slow disk", "slow network"),
    "tell-of-gaps": ("pause", "partition", "one way cut"),
    "hide-damage": ("damaged disk", "kill", "kill of a leader"),
    "leave-damage": ("damage while running", "kill"),
}
"""The only faults that the short hunt injects, by bug: they cause the situation in which the bug shows."""


def hunt(bug: Bug, seeds: Iterable[int], faults: Collection[str] = ()) -> int | None:
    """The first seed that breaks a promise with the bug; that nothing goes on any more is not enough."""
    with planted(bug):
        for seed in seeds:
            outcome = run_one(seed, faults=faults)
            if broken_by(bug.name, outcome.broken) and not outcome.stuck:
                return seed
    return None


def bug_of(name: str) -> Bug:
    return next(bug for bug in BUGS if bug.name == name)


@pytest.mark.parametrize("name", FOUND_BY)
def test_the_seed_that_found_a_bug_finds_it_again(name: str) -> None:
    faults = MADE_BY.get(name, ())
    assert hunt(bug_of(name), chain([FOUND_BY[name]], RARE if faults else NEARBY), faults) is not None


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_it_is_found_within_so_many_seeds(bug: Bug) -> None:
    found = hunt(bug, range(1, MOST_SEEDS + 1))
    print(f"{bug.name}: seed {found}")
    assert found is not None
