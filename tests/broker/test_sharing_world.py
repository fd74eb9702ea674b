"""Share groups on three brokers, whatever happens to them."""

import pytest
from tests.broker.shared_world import SharedWorld

SEEDS = 20
STEPS = 200


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_what_was_acknowledged_does_not_come_again_and_counts_hold(seed: int) -> None:
    assert SharedWorld(seed).run(STEPS)["delivered"]
