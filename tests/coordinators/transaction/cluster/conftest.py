"""What tests of coordinators on several nodes begin with."""

import pytest
from tests.coordinators.transaction.cluster.world import World


@pytest.fixture
def world() -> World:
    made = World()
    made.create("a", 3)
    return made
