"""Many partitions leave a node that is silent or drains, also where another controller goes on with it."""

from collections.abc import Sequence

import pytest
from tests.controller.active.node import SESSIONS
from tests.controller.active.test_active import Cluster

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError
from duramen.base.ids import stream_id_of
from duramen.broker.control import requests
from duramen.controller.active.evacuation import Evacuation
from duramen.controller.active.node_requests import let_go_draining
from duramen.controller.active.pending_changes import PendingChanges
from duramen.controller.membership.lifecycle import LifecyclePhase
from duramen.metadata import fencing
from duramen.metadata.decisions import Definition
from duramen.metadata.events import NodeDraining, NodeRegistered, NodeUnfenced, PartitionChanged, StreamCreated
from duramen.metadata.nodes import Node
from duramen.metadata.partitions import PartitionId
from duramen.metadata.state import ControllerState
from duramen.sim.machine.clock import ManualClock

GONE = 5
PARTITIONS = 12
STREAM = stream_id_of("00000000-0000-8000-8000-000000000001")


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencing, "AT_ONCE", 2)


def loaded() -> Cluster:
    """A cluster whose node 5 holds all partitions of a stream, and leads a third of them."""
    cluster = Cluster()
    orders = ([GONE, 1, 2], [1, GONE, 2], [2, 1, GONE])
    assignment = tuple(tuple(orders[index % 3]) for index in range(PARTITIONS))
    cluster.decided(requests.CreateStream(Definition("a", PARTITIONS), 3, assignment))
    assert led_by(cluster, GONE) == PARTITIONS // 3
    return cluster


def held(leaders: Sequence[int]) -> ControllerState:
    """Nodes 5 and 1, which hold partitions with these leaders."""
    state = ControllerState()
    for node_id, epoch in ((GONE, 3), (1, 4)):
        state.apply(NodeRegistered(node_id, f"d{node_id}", epoch=epoch))
        state.apply(NodeUnfenced(node_id, epoch))
    state.apply(StreamCreated("a", str(STREAM), len(leaders), {}, (), False, 0))
    for index, leader in enumerate(leaders):
        state.apply(PartitionChanged(str(STREAM), index, 0, leader, 0, (GONE, 1), (GONE, 1)))
    return state


def silent() -> Cluster:
    """The same, where node 5 has begun to lose them."""
    cluster = loaded()
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
    state = held([1, GONE, 1, GONE, GONE])
    deadlines, clock, turns, fenced = Deadlines(), ManualClock(), list[list[int]](), list[int]()

    def settle(_: Node, places: Sequence[PartitionId]) -> None:
        turns.append([place.partition for place in places])

    Evacuation(deadlines, clock).leave(state, GONE, settle, fenced.append)
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


def test_a_node_that_drains_may_stop_once_others_lead_and_it_is_in_no_in_sync_set() -> None:
    cluster = loaded()
    cluster.part(GONE).lifecycle.drain()
    cluster.go_on_until(lambda: cluster.part(GONE).lifecycle.phase is LifecyclePhase.DRAINED, 2_000)
    assert (led_by(cluster, GONE), in_sync(cluster, GONE)) == (0, 0)
    assert not is_live(cluster, GONE)
    assert led_by(cluster, 1) + led_by(cluster, 2) == PARTITIONS


def test_what_a_node_leads_that_drains_goes_first_and_not_twice_at_a_time() -> None:
    state = held([1, GONE, 1, GONE, GONE])
    deadlines, clock, turns = Deadlines(), ManualClock(), list[list[int]]()

    def settle(_: Node, places: Sequence[PartitionId]) -> None:
        turns.append([place.partition for place in places])

    work = Evacuation(deadlines, clock)
    work.drain(state, GONE, settle)
    assert turns == [], "it does not drain"
    state.apply(NodeDraining(GONE, 3))
    work.drain(state, GONE, settle)
    work.drain(state, GONE, settle)
    assert turns == [[1, 3]]
    deadlines.fire(clock.monotonic_ms())
    assert turns == [[1, 3], [4, 0], [2]]
    work.drain(state, GONE, settle)
    assert turns[3:] == [[1, 3]], "nothing has come of it: once more"


def test_the_next_controller_goes_on_with_a_node_that_drains() -> None:
    cluster = loaded()
    cluster.part(GONE).lifecycle.drain()
    cluster.go_on_until(lambda: GONE in cluster.auditor.state.registrations.draining, 2_000)
    assert in_sync(cluster, GONE)
    old = cluster.leader
    assert old.runner is not None
    old.runner.resign()
    cluster.go_on_until(lambda: cluster.active not in (None, old), 2_000)
    cluster.go_on_until(lambda: cluster.part(GONE).lifecycle.phase is LifecyclePhase.DRAINED, 5_000)
    assert (led_by(cluster, GONE), in_sync(cluster, GONE)) == (0, 0)


def test_an_operator_drains_a_node_with_many_partitions() -> None:
    cluster = loaded()
    assert not isinstance(cluster.decided(requests.DrainNode(GONE)), DuramenError)
    cluster.go_on_until(lambda: not in_sync(cluster, GONE), 500)
    assert is_live(cluster, GONE)
    assert not led_by(cluster, GONE)


def test_a_node_that_registers_again_while_it_drains_loses_no_more() -> None:
    state = held([GONE] * 5)
    state.apply(NodeDraining(GONE, 3))
    node = state.registrations.get(GONE)
    assert node is not None
    draft = PendingChanges(state, 10)
    let_go_draining(node, [PartitionId(STREAM, 0)], draft)
    assert [event.leader for event in draft.events if isinstance(event, PartitionChanged)] == [1]
    draft = PendingChanges(state, 11)
    state.apply(NodeRegistered(GONE, "d", "again", epoch=12))
    let_go_draining(node, [PartitionId(STREAM, 1)], draft)
    assert draft.events == []
