"""Seeds of a partition's replicas on simulated disks: no promise is broken, and a seed does the same each time."""

import pytest
from tests.broker.replicas.simulation import Simulation
from tests.broker.replicas.world import Totals

SEEDS = 20
SEEDS_LONG = 2_000


def run(seeds: range) -> Totals:
    totals = Totals()
    for seed in seeds:
        try:
            done = Simulation(seed).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        totals = Totals(*map(sum, zip(totals, done, strict=True)))
    return totals


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


@pytest.mark.long
def test_no_promise_is_broken_in_many_seeds() -> None:
    run(range(SEEDS, SEEDS_LONG))


def test_a_seed_makes_the_same_trace() -> None:
    first, again, other = (Simulation(number, trace=True) for number in (3, 3, 4))
    for world in (first, again, other):
        world.run()
    assert len(first.trace) > 100
    assert first.trace == again.trace
    assert first.trace != other.trace
