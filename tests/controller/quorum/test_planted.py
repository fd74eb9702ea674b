"""The simulation finds each planted bug: within 1,000 seeds where the hunt is long, with the seed that did it here.

Where the simulation changes, seeds do other things: the long hunt says which ones find the bugs then.
"""

import pytest
from tests.controller.quorum.planted import BUGS
from tests.controller.quorum.simulation import Simulation
from tests.controller.quorum.witness import Broken, Stuck
from tests.sim.planted import Bug, planted

MOST_SEEDS = 1_000

FOUND_BY = {
    "vote-twice": 105,
    "vote-blank": 63,
    "commit-earlier": 320,
    "report-written": 274,
    "forget-epoch": 134,
    "forget-epoch-of-fetches": 0,
    "vote-behind": 4,
    "change-underway": 116,
    "half-is-enough": 4,
    "believe-late": 352,
}

FOUND_STUCK = {"forget-epoch-of-fetches"}
"""A quorum with these breaks nothing that is seen, but does not go on; the others lose or contradict something."""


def hunt(bug: Bug, seeds: range) -> int | None:
    """The first seed that breaks a promise with the bug."""
    with planted(bug):
        for seed in seeds:
            try:
                Simulation(seed).run()
            except Broken:
                return seed
            except Stuck:
                if bug.name in FOUND_STUCK:
                    return seed
    return None


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_seed_that_found_it(bug: Bug) -> None:
    seed = FOUND_BY[bug.name]
    assert hunt(bug, range(seed, seed + 1)) == seed
    Simulation(seed).run()


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_it_is_found_within_a_thousand_seeds(bug: Bug) -> None:
    assert hunt(bug, range(MOST_SEEDS)) is not None
