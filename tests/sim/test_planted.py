"""The simulator finds every planted bug, its checker unchanged: by the known seed, and by one of a thousand."""

import pytest
from tests.sim.hunt import SEEDS, broken_by, hunt, known_seeds
from tests.sim.planted import BUGS

from duramen.sim.running import run_one


@pytest.mark.parametrize("name", [bug.name for bug in BUGS])
def test_the_seed_that_found_a_bug_finds_it_again(name: str) -> None:
    seed = known_seeds()[name]
    assert seed in SEEDS
    assert broken_by(name, seed)
    assert not run_one(seed).broken


@pytest.mark.long
def test_each_bug_is_found_within_a_thousand_seeds() -> None:
    found = {name: (seed, broken) for name, seed, broken in hunt(bug.name for bug in BUGS)}
    print(*(f"{name}: seed {seed}: {broken}" for name, (seed, broken) in sorted(found.items())), sep="\n")
    assert [bug.name for bug in BUGS if not found[bug.name][0]] == []
