"""Seeds of the simulated partition: nothing that the witness sees breaks a promise, and what a seed does is its own."""

from functools import partial

import pytest
from tests.replication.simulation import Simulation
from tests.replication.world import Totals
from tests.seeds import add_up, same_traces

SEEDS = 50
SEEDS_LONG = 20_000


def run(seeds: range) -> Totals:
    return add_up(Simulation, Totals._make, seeds)


def test_no_promise_is_broken() -> None:
    totals = run(range(SEEDS))
    assert totals.delivered > 500 * SEEDS
    assert totals.crashes > 10 * SEEDS
    assert totals.acknowledged > 10 * SEEDS
    # Each happens in many seeds, so that what is right was not right for want of trouble.
    assert min(totals.epochs, totals.wipes, totals.cuts, totals.alterations, totals.refused, totals.waits) > SEEDS
    assert totals.asked > 10 * SEEDS
    assert totals.moves > 0
    assert totals.restarts > SEEDS // 2


@pytest.mark.long
def test_no_promise_is_broken_in_many_seeds() -> None:
    run(range(SEEDS, SEEDS_LONG))


@pytest.mark.parametrize("seed", [3, 7, 11])
def test_a_seed_makes_the_same_trace(seed: int) -> None:
    same_traces(partial(Simulation, trace=True), seed, at_least=500)
