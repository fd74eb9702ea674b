"""Seeds of the simulated partition: nothing that the witness sees breaks a promise, and what a seed does is its own."""

import pytest
from tests.replication.simulation import Simulation
from tests.replication.world import Totals

SEEDS = 200
SEEDS_LONG = 20_000


def run(seeds: range) -> Totals:
    totals = Totals(*[0] * len(Totals._fields))
    for seed in seeds:
        try:
            done = Simulation(seed).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        totals = Totals(*map(sum, zip(totals, done, strict=True)))
    return totals


def test_no_promise_is_broken() -> None:
    totals = run(range(SEEDS))
    assert totals.delivered > 500 * SEEDS
    assert totals.crashes > 10 * SEEDS
    assert totals.acknowledged > 10 * SEEDS
    # Each happens in many seeds, so that what is right was not right for want of trouble.
    assert min(totals.epochs, totals.wipes, totals.cuts, totals.alterations, totals.refused, totals.waits) > SEEDS
    assert totals.restarts > SEEDS // 2


@pytest.mark.long
def test_no_promise_is_broken_in_many_seeds() -> None:
    run(range(SEEDS, SEEDS_LONG))


@pytest.mark.parametrize("seed", [3, 7, 11])
def test_a_seed_makes_the_same_trace(seed: int) -> None:
    first, again, other = (Simulation(number, trace=True) for number in (seed, seed, seed + 1))
    for simulation in (first, again, other):
        simulation.run()
    assert len(first.trace) > 500
    assert first.trace == again.trace
    assert first.trace != other.trace
