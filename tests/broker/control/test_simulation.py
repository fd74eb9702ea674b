"""Seeds of clusters whose controller fails over: no promise is broken, and a seed does the same each time."""

import pytest
from tests.broker.control.simulation import Counts, Simulation

SEEDS = 12
SEEDS_LONG = 2_000


def run(seeds: range) -> Counts:
    totals = Counts()
    for seed in seeds:
        try:
            done = Simulation(seed).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        totals = Counts(*map(sum, zip(totals, done, strict=True)))
    return totals


def test_no_promise_is_broken() -> None:
    totals = run(range(SEEDS))
    # Each happens often, so that what is right was not right for want of trouble.
    assert totals.ends > 10 * SEEDS
    assert totals.power_losses > 4 * SEEDS
    assert totals.epochs > 3 * SEEDS
    assert totals.elections > 20 * SEEDS
    assert totals.granted > 15 * SEEDS
    assert min(totals.refused, totals.unknown) > 5 * SEEDS
    assert min(totals.fenced, totals.drained, totals.paused, totals.awaited) > SEEDS // 2


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
