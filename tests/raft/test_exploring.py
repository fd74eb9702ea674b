"""Within small bounds nothing that the quorum can do breaks a promise; and with a planted bug something does."""

import pytest
from tests.raft.exploring import Bounds, explore
from tests.raft.planted import BUGS
from tests.raft.reached import SOON
from tests.raft.witness import Broken
from tests.sim.planted import planted

MOST_STATES = 400_000

ALL_OF_IT = [
    Bounds(exchanges=False, epochs=1, records=0, restarts=0),
    Bounds(exchanges=True, epochs=1, records=1, restarts=0),
    Bounds(exchanges=True, epochs=1, records=0, restarts=1),
]
CLOSINGS = Bounds(exchanges=True, epochs=1, records=1, restarts=0, closings=1)
A_PART_OF_IT = Bounds(exchanges=True, epochs=3, records=2, restarts=2)

FOUND_WITHIN = {
    "vote-twice": Bounds(exchanges=True, epochs=1, records=0, restarts=1),
    "vote-behind": Bounds(exchanges=True, epochs=2, records=0, restarts=0),
}


def name_of(bounds: Bounds) -> str:
    kind = "exchanges" if bounds.exchanges else "messages"
    return f"{kind}-{bounds.epochs}-{bounds.records}-{bounds.restarts}-{bounds.closings}"


@pytest.mark.parametrize("bounds", [*ALL_OF_IT, pytest.param(CLOSINGS, marks=pytest.mark.long)], ids=name_of)
def test_every_order_of_events(bounds: Bounds) -> None:
    explored = explore(bounds, MOST_STATES)
    assert explored.complete
    assert explored.states > 200


@pytest.mark.long
@pytest.mark.parametrize("bounds", SOON, ids=name_of)
def test_every_order_of_more_events(bounds: Bounds) -> None:
    assert explore(bounds, MOST_STATES).complete


@pytest.mark.long
def test_some_orders_of_many_events() -> None:
    explored = explore(A_PART_OF_IT, MOST_STATES)
    assert explored.states >= MOST_STATES
    assert not explored.complete


@pytest.mark.parametrize("name", FOUND_WITHIN)
def test_a_planted_bug_breaks_something(name: str) -> None:
    bug = next(bug for bug in BUGS if bug.name == name)
    with planted(bug), pytest.raises(Broken):
        explore(FOUND_WITHIN[name], MOST_STATES)
