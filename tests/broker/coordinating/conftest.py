"""What tests of coordinators on several nodes begin with."""

import pytest
from tests.broker.coordinating.world import World


@pytest.fixture
def world() -> World:
    made = World()
    made.create("a", 3)
    return made
