"""A node is gone, is back, or is about to stop: what that means for the partitions that it holds. Pure."""

from collections.abc import Iterable

from duramen.controller.cluster.rules import Loss, RulesOf
from duramen.controller.cluster.settling import Alike
from duramen.controller.events import (
    Event,
    NodeDraining,
    NodeEvent,
    NodeFenced,
    NodeUnfenced,
    PartitionChanged,
)
from duramen.controller.nodes import Node, Nodes
from duramen.controller.partitions import PartitionId, PartitionState
from duramen.controller.state import ControllerState

__all__ = ["drain", "fence", "is_drained", "leave", "resettle", "unfence"]


def fence(state: ControllerState, node: Node) -> list[Event]:
    """The node is silent: it leaves every in-sync set, and others lead what it led."""
    return [] if node.fenced else _with(state, NodeFenced(node.id, node.epoch))


def leave(state: ControllerState, node: Node, places: Iterable[PartitionId]) -> list[PartitionChanged]:
    """What becomes of some partitions of a node that is about to be fenced, as if it were."""
    alike, rules_of = Alike(state.registrations.after(NodeFenced(node.id, node.epoch))), RulesOf(state)
    events: list[PartitionChanged] = []
    for place in places:
        partition = state.partitions.get(place)
        if partition is not None:
            events += alike.change(place, partition, rules_of[place.stream_id])
    return events


def unfence(state: ControllerState, node: Node) -> list[Event]:
    """The node is back and knows the metadata: partitions that wait for it get their leader."""
    if not node.fenced:
        return []
    event = NodeUnfenced(node.id, node.epoch)
    alike, rules_of = Alike(state.registrations.after(event)), RulesOf(state)
    events: list[Event] = [event]
    for place, partition in state.partitions.of_node(node.id):
        if partition.leader is None:
            events += alike.change(place, partition, rules_of[place.stream_id])
    return events


def drain(state: ControllerState, node: Node) -> list[Event]:
    """The node is about to stop: leaders leave it where another is in sync, and it leaves those in-sync sets."""
    return [] if node.draining else _with(state, NodeDraining(node.id, node.epoch))


def is_drained(state: ControllerState, node: Node) -> bool:
    """Whether a node that drains leads nothing that another could lead: nothing is gained by waiting."""
    return all(
        partition.leader != node.id or state.registrations.draining.issuperset(partition.isr)
        for _, partition in state.partitions.of_node(node.id)
    )


def _with(state: ControllerState, event: NodeEvent) -> list[Event]:
    return [event, *resettle(state, event.node_id, state.registrations.after(event))]


def resettle(state: ControllerState, node_id: int, nodes: Nodes, loss: Loss = Loss.NOTHING) -> list[PartitionChanged]:
    """What becomes of the partitions of a node when these are the nodes, and the node has had that loss.

    Who may have lost some of a partition holds it only if nobody else does; who has lost all holds nothing.
    """
    alike, rules_of = Alike(nodes), RulesOf(state)
    blank = node_id if loss is Loss.ALL else None
    events: list[PartitionChanged] = []
    for place, partition in state.partitions.of_node(node_id):
        rules = rules_of[place.stream_id]
        lost = node_id if rules.loses(loss) and _others_hold(partition, node_id) else None
        events += alike.change(place, partition, rules, lost=lost, blank=blank)
    return events


def _others_hold(partition: PartitionState, node_id: int) -> bool:
    return any(member != node_id for member in (*partition.isr, *partition.elr))
