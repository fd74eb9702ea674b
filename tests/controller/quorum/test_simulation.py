"""Seeds of quorums on simulated disks: no promise is broken, and a seed does the same each time."""

from functools import partial

import pytest
from tests.controller.quorum.simulation import Simulation
from tests.controller.quorum.world import Totals
from tests.seeds import add_up, same_traces

SEEDS = 30
SEEDS_LONG = 3_000


def run(seeds: range) -> Totals:
    return add_up(Simulation, Totals._make, seeds)


def test_no_promise_is_broken() -> None:
    totals = run(range(SEEDS))
    # Each happens often, so that what is right was not right for want of trouble.
    assert totals.delivered > 300 * SEEDS
    assert totals.ends > 8 * SEEDS
    assert totals.power_losses > 5 * SEEDS
    assert totals.torn > SEEDS
    assert totals.epochs > 3 * SEEDS
    assert totals.answered > 15 * SEEDS
    assert min(totals.installs, totals.changes, totals.unknown, totals.refused) > SEEDS // 2
    assert totals.wipes > SEEDS // 6
    assert totals.failures > SEEDS // 10
    assert totals.full_disks > SEEDS // 2
    assert totals.hopeless <= SEEDS // 30


@pytest.mark.parametrize("seed", [3010])
def test_seeds_that_found_something(seed: int) -> None:
    run(range(seed, seed + 1))


@pytest.mark.long
def test_no_promise_is_broken_in_many_seeds() -> None:
    run(range(SEEDS, SEEDS_LONG))


@pytest.mark.parametrize("seed", [2, 5])
def test_a_seed_makes_the_same_trace(seed: int) -> None:
    same_traces(partial(Simulation, trace=True), seed, at_least=100)
