"""Seeds of clusters whose controller fails over: no promise is broken, and a seed does the same each time."""

from functools import partial

import pytest
from tests.controller.active.simulation import Counts, Simulation
from tests.seeds import add_up, same_traces

SEEDS = 12
SEEDS_LONG = 2_000


def run(seeds: range) -> Counts:
    return add_up(Simulation, Counts._make, seeds)


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
    same_traces(partial(Simulation, trace=True), 3, at_least=100)
