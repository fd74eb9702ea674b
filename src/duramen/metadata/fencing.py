"""The effects on partitions when one of their nodes is fenced, is unfenced, or is about to stop. Pure."""

from collections.abc import Iterable
from typing import Final

from duramen.metadata.events import Event, NodeDraining, NodeEvent, NodeFenced, NodeUnfenced, PartitionChanged
from duramen.metadata.leader_election import Alike
from duramen.metadata.nodes import Node, Nodes
from duramen.metadata.partitions import PartitionId, PartitionState
from duramen.metadata.state import ControllerState
from duramen.metadata.stream_rules import Loss, RulesOf

__all__ = ["AT_ONCE", "drain", "fence", "has_many", "is_drained", "leave", "let_go", "resettle", "unfence"]

AT_ONCE: Final = 1_000
"""Partitions that leave a node in one turn. A controller that decides on more is deaf for longer than others wait."""


def has_many(state: ControllerState, node_id: int) -> bool:
    """Whether the partitions of a node leave it in several turns."""
    return state.partitions.replica_count(node_id) > AT_ONCE


def fence(state: ControllerState, node: Node) -> list[Event]:
    """The node is silent: it leaves every in-sync set, and others lead what it led."""
    return [] if node.fenced else _with(state, NodeFenced(node.id, node.epoch))


def leave(state: ControllerState, node: Node, places: Iterable[PartitionId]) -> list[PartitionChanged]:
    """What becomes of some partitions of a node that is about to be fenced, as if it were."""
    return _some(state, places, state.registrations.after(NodeFenced(node.id, node.epoch)))


def let_go(state: ControllerState, places: Iterable[PartitionId]) -> list[PartitionChanged]:
    """What becomes of some partitions of a node that drains."""
    return _some(state, places, state.registrations)


def unfence(state: ControllerState, node: Node) -> list[Event]:
    """The node is back and knows the metadata: partitions that wait for it get their leader."""
    if not node.fenced:
        return []
    event = NodeUnfenced(node.id, node.epoch)
    waiting = [place for place, partition in state.partitions.of_node(node.id) if partition.leader is None]
    return [event, *_some(state, waiting, state.registrations.after(event))]


def drain(state: ControllerState, node: Node, *, unwritable: bool = False) -> list[Event]:
    """The node is about to stop: leaders leave it where another is in sync, and it leaves those in-sync sets.

    So it is where its storage takes no writes (`unwritable`). Where it has many partitions only that is said: `let_go`
    is for them.
    """
    if node.draining and node.unwritable >= unwritable:
        return []
    event = NodeDraining(node.id, node.epoch, unwritable)
    return [event] if has_many(state, node.id) else _with(state, event)


def is_drained(state: ControllerState, node: Node) -> bool:
    """Whether a node that drains is in no in-sync set that it could leave: nothing is gained by waiting."""
    return all(
        node.id not in partition.isr or state.registrations.draining.issuperset(partition.isr)
        for _, partition in state.partitions.of_node(node.id)
    )


def _some(state: ControllerState, places: Iterable[PartitionId], nodes: Nodes) -> list[PartitionChanged]:
    alike, rules_of = Alike(nodes), RulesOf(state)
    events: list[PartitionChanged] = []
    for place in places:
        partition = state.partitions.get(place)
        if partition is not None:
            events += alike.change(place, partition, rules_of[place.stream_id])
    return events


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
