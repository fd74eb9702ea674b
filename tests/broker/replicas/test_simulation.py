"""Seeds of a partition's replicas on simulated disks: no promise is broken, and a seed does the same each time."""

from functools import partial

import pytest
from tests.broker.replicas.simulation import Simulation
from tests.broker.replicas.world import Totals
from tests.seeds import add_up, same_traces

SEEDS = 30
SEEDS_LONG = 2_000


def run(seeds: range) -> Totals:
    return add_up(Simulation, Totals._make, seeds)


def test_no_promise_is_broken() -> None:
    totals = run(range(SEEDS))
    # Each happens often, so that what is right was not right for want of trouble.
    assert totals.delivered > 500 * SEEDS
    assert totals.ends > 8 * SEEDS
    assert totals.power_losses > 6 * SEEDS
    assert totals.acknowledged > 15 * SEEDS
    assert totals.checked > 40 * SEEDS
    assert min(totals.epochs, totals.torn, totals.refused) > SEEDS
    assert min(totals.cuts, totals.restarts, totals.wipes) > SEEDS // 2
    assert totals.failures > SEEDS // 10


@pytest.mark.parametrize("seed", [411])
def test_seeds_that_found_something(seed: int) -> None:
    run(range(seed, seed + 1))


@pytest.mark.long
def test_no_promise_is_broken_in_many_seeds() -> None:
    run(range(SEEDS, SEEDS_LONG))


def test_a_seed_makes_the_same_trace() -> None:
    same_traces(partial(Simulation, trace=True), 3, at_least=100)
