"""A broker on doubles for each test."""

import pytest

from duramen.sim.broker import ManualBroker


@pytest.fixture
def hand() -> ManualBroker:
    """A broker that has started and has one stream, `a`, of three partitions."""
    hand = ManualBroker()
    hand.create("a", partitions=3)
    return hand
