"""The simulation finds each planted bug, here with the seed that found it first.

Where the simulation changes, seeds do other things: the long hunt says which ones find the bugs then.
"""

import pytest
from tests.controller.active.planted import BUGS
from tests.controller.active.simulation import Simulation
from tests.raft.witness import Stuck
from tests.seeds import first_that_finds
from tests.sim.planted import Bug

MOST_SEEDS = 1_000

FOUND_BY = {
    "on-committed": 0,
    "say-proposed": 0,
    "say-what-rests": 3,
    "too-early": 0,
    "old-sessions": 2,
    "ask-again": 7,
    "know-all": 3,
    "stay-active": 1,
}


def hunt(bug: Bug, seeds: range) -> int | None:
    return first_that_finds(bug, Simulation, seeds, stuck=Stuck)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_seed_that_found_it(bug: Bug) -> None:
    seed = FOUND_BY[bug.name]
    assert hunt(bug, range(seed, seed + 1)) == seed


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_it_is_found_within_so_many_seeds(bug: Bug) -> None:
    assert hunt(bug, range(MOST_SEEDS)) is not None
