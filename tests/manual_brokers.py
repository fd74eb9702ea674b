"""A broker on doubles for each test."""

import pytest

from duramen.sim.broker import ManualBroker


def _hand(durability: str) -> ManualBroker:
    hand = ManualBroker({"log.durability": durability})
    hand.create("a", partitions=3)
    return hand


@pytest.fixture
def hand() -> ManualBroker:
    """A broker that has started and has one stream, `a`, of three partitions."""
    return _hand("sync")


@pytest.fixture
def synced() -> ManualBroker:
    """The same with durability=sync, whatever else a module's tests are run with: for what has to be on a disk."""
    return _hand("sync")


@pytest.fixture(params=["sync", "os", "memory"])
def any_hand(request: pytest.FixtureRequest) -> ManualBroker:
    """The same with each durability: for what does not depend on it."""
    return _hand(request.param)
