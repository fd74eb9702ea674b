"""The simulation finds each planted bug, here with the seed that found it first.

Where the simulation changes, seeds do other things: the long hunt says which ones find the bugs then.
"""

import pytest
from tests.broker.replicas.planted import BUGS
from tests.broker.replicas.simulation import Simulation
from tests.replication.broken import Stuck
from tests.seeds import first_that_finds
from tests.sim.planted import Bug

MOST_SEEDS = 1_000

FOUND_BY = {
    "cut-to-high-watermark": 0,
    "report-written": 3,
    "acknowledge-own": 0,
    "cut-later": 1,
    "show-all": 0,
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
