"""The simulation finds each planted bug: within 1,000 seeds where the hunt is long, with the seed that did it here.

Where the simulation changes, seeds do other things: the long hunt says which ones find the bugs then.
"""

import pytest
from tests.raft.planted import BUGS
from tests.raft.simulation import Simulation
from tests.raft.witness import Stuck
from tests.seeds import first_that_finds
from tests.sim.planted import Bug

MOST_SEEDS = 1_000

FOUND_BY = {
    "vote-twice": 21,
    "vote-blank": 62,
    "commit-earlier": 119,
    "report-written": 128,
    "forget-epoch": 949,
    "forget-epoch-of-fetches": 388,
    "vote-behind": 8,
    "change-underway": 806,
    "half-is-enough": 39,
    "believe-late": 25,
}


def hunt(bug: Bug, seeds: range) -> int | None:
    return first_that_finds(bug, Simulation, seeds, stuck=Stuck)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_seed_that_found_it(bug: Bug) -> None:
    seed = FOUND_BY[bug.name]
    assert hunt(bug, range(seed, seed + 1)) == seed
    Simulation(seed).run()


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_it_is_found_within_a_thousand_seeds(bug: Bug) -> None:
    assert hunt(bug, range(MOST_SEEDS)) is not None
