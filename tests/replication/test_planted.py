"""The simulation finds each planted bug: within 1,000 seeds where the hunt is long, with the seed that did it here.

Where the simulation changes, seeds do other things: the long hunt says which ones find the bugs then.
"""

import pytest
from tests.replication.broken import Stuck
from tests.replication.planted import BUGS
from tests.replication.simulation import Simulation
from tests.seeds import first_that_finds
from tests.sim.planted import Bug

MOST_SEEDS = 1_000

FOUND_BY = {
    "cut-to-high-watermark": 0,
    "report-written": 1,
    "stale-in-sync": 0,
    "forget-refused": 123,
    "count-proposed": 6,
    "any-epoch": 62,
    "elect-anybody": 0,
    "tell-at-once": 0,
    "join-early": 6,
    "join-before-tail": 76,
    "unconfirmed": 0,
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
