"""The simulator finds every planted bug, its checker unchanged: by the known seed, and by one of two thousand."""

from itertools import chain
from typing import Final

import pytest
from tests.sim.bugs.every import BUGS
from tests.sim.hunt import SEEDS, first_seed, hunt, known_seeds

NEARBY: Final = range(1, 401)  # a change of the code gives every seed another history: then one of these finds it


@pytest.mark.parametrize("name", [bug.name for bug in BUGS])
def test_the_seed_that_found_a_bug_finds_it_again(name: str) -> None:
    known = known_seeds()[name]
    assert known in SEEDS
    _, seed, broken = first_seed(name, chain([known], NEARBY))
    assert seed, "`python -m tests.sim.hunt` looks for it by two thousand seeds"
    assert broken


@pytest.mark.long
def test_each_bug_is_found_within_two_thousand_seeds() -> None:
    found = {name: (seed, broken) for name, seed, broken in hunt(bug.name for bug in BUGS)}
    print(*(f"{name}: seed {seed}: {broken}" for name, (seed, broken) in sorted(found.items())), sep="\n")
    assert [bug.name for bug in BUGS if not found[bug.name][0]] == []
