"""Many partitions leave a node that is silent, and it is fenced, also where another controller goes on with it."""

from collections.abc import Sequence

import pytest
from tests.broker.control.node import SESSIONS
from tests.broker.control.test_active import Cluster

from duramen.base.deadlines import Deadlines
from duramen.broker.control import requests
from duramen.broker.control.settling import Settling
from duramen.controller.cluster import fencing
from duramen.controller.decisions import Definition
from duramen.controller.events import NodeRegistered, PartitionChanged, StreamCreated
from duramen.controller.nodes import Node
from duramen.controller.partitions import PartitionId
from duramen.controller.state import ControllerState
from duramen.sim.clock import ManualClock

GONE = 5
PARTITIONS = 12


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencing, "AT_ONCE", 2)


def silent() -> Cluster:
    """A cluster whose node 5 held all partitions of a stream, led a third of them, and has begun to lose them."""
    cluster = Cluster()
    orders = ([GONE, 1, 2], [1, GONE, 2], [2, 1, GONE])
    assignment = tuple(tuple(orders[index % 3]) for index in range(PARTITIONS))
    cluster.decided(requests.CreateStream(Definition("a", PARTITIONS), 3, assignment))
    assert led_by(cluster, GONE) == PARTITIONS // 3
    cluster.part(GONE).end()
    cluster.go_on_until(lambda: in_sync(cluster, GONE) < PARTITIONS, 2 * SESSIONS.timeout_ms)
    return cluster


def led_by(cluster: Cluster, node_id: int) -> int:
    return cluster.auditor.state.partitions.leader_count(node_id)


def in_sync(cluster: Cluster, node_id: int) -> int:
    return sum(node_id in partition.isr for _, partition in cluster.auditor.state.partitions)


def is_live(cluster: Cluster, node_id: int) -> bool:
    return node_id in cluster.auditor.state.registrations.live


def test_what_a_lost_node_led_is_led_by_others() -> None:
    cluster = silent()
    assert in_sync(cluster, GONE)
    cluster.go_on_until(lambda: not is_live(cluster, GONE), 500)
    assert not in_sync(cluster, GONE)
    assert led_by(cluster, 1) + led_by(cluster, 2) == PARTITIONS


def test_the_next_controller_goes_on_with_what_is_left() -> None:
    cluster = silent()
    old = cluster.leader
    assert old.runner is not None
    old.runner.resign()
    cluster.go_on_until(lambda: cluster.active not in (None, old), 2_000)
    assert in_sync(cluster, GONE)
    assert is_live(cluster, GONE)
    cluster.go_on_until(lambda: not is_live(cluster, GONE), 2 * SESSIONS.timeout_ms)
    assert not in_sync(cluster, GONE)
    assert not led_by(cluster, GONE)


def test_what_it_leads_goes_first_and_a_few_in_each_turn() -> None:
    stream = "00000000-0000-8000-8000-000000000001"
    state = ControllerState()
    state.apply(NodeRegistered(GONE, "d"))
    state.apply(StreamCreated("a", stream, 5, {}, (), False, 0))
    for index, leader in enumerate([1, GONE, 1, GONE, GONE]):
        state.apply(PartitionChanged(stream, index, 0, leader, 0, (1, GONE), (1, GONE)))
    deadlines, clock, turns, fenced = Deadlines(), ManualClock(), list[list[int]](), list[int]()

    def settle(_: Node, places: Sequence[PartitionId]) -> None:
        turns.append([place.partition for place in places])

    Settling(deadlines, clock).leave(state, GONE, settle, fenced.append)
    assert turns == [[1, 3]]
    deadlines.fire(clock.monotonic_ms(), 1)
    assert turns == [[1, 3], [4, 0]]
    deadlines.fire(clock.monotonic_ms())
    assert (turns, fenced) == ([[1, 3], [4, 0], [2]], [GONE])


def test_nothing_more_leaves_once_the_controller_is_active_no_more() -> None:
    cluster = silent()
    old = cluster.leader
    left = in_sync(cluster, GONE)
    assert old.controller is not None
    old.controller.stop()
    for _ in range(5):
        cluster.go_on(1)
    assert in_sync(cluster, GONE) == left
