"""The changes of partitions when one of their nodes is fenced, unfenced, or about to stop. Pure."""

from collections.abc import Iterable
from typing import Final

from duramen.metadata.events import Event, NodeDraining, NodeEvent, NodeFenced, NodeUnfenced, PartitionChanged
from duramen.metadata.leader_election import ElectionCache
from duramen.metadata.nodes import Node, Nodes
from duramen.metadata.partitions import PartitionId, PartitionState
from duramen.metadata.state import ControllerState
from duramen.metadata.stream_rules import Loss, RulesOf

__all__ = ["AT_ONCE", "drain", "fence", "has_many", "is_drained", "leave", "let_go", "resettle", "unfence"]

AT_ONCE: Final = 1_000
"""Partitions per step that move off a node. A controller that decides on more does not respond for too long."""


def has_many(state: ControllerState, node_id: int) -> bool:
    """Whether the partitions of a node move in several steps."""
    return state.partitions.replica_count(node_id) > AT_ONCE


def fence(state: ControllerState, node: Node) -> list[Event]:
    """The node is silent: it leaves every in-sync set, and other nodes become leaders."""
    return [] if node.fenced else _with(state, NodeFenced(node.id, node.epoch))


def leave(state: ControllerState, node: Node, places: Iterable[PartitionId]) -> list[PartitionChanged]:
    """The changes of some partitions of a node that is about to be fenced, as if it were."""
    return _some(state, places, state.registrations.after(NodeFenced(node.id, node.epoch)))


def let_go(state: ControllerState, places: Iterable[PartitionId]) -> list[PartitionChanged]:
    """The changes of some partitions of a draining node."""
    return _some(state, places, state.registrations)


def unfence(state: ControllerState, node: Node) -> list[Event]:
    """The node is live and knows the metadata: partitions that wait for it get their leader."""
    if not node.fenced:
        return []
    event = NodeUnfenced(node.id, node.epoch)
    waiting = [place for place, partition in state.partitions.of_node(node.id) if partition.leader is None]
    return [event, *_some(state, waiting, state.registrations.after(event))]


def drain(state: ControllerState, node: Node, *, unwritable: bool = False) -> list[Event]:
    """The node is about to stop: leadership moves to other in-sync nodes, and it leaves those in-sync sets.

    The same holds if its storage accepts no writes (`unwritable`). For a node with many partitions this only records
    the state: `let_go` moves them.
    """
    if node.draining and node.unwritable >= unwritable:
        return []
    event = NodeDraining(node.id, node.epoch, unwritable)
    return [event] if has_many(state, node.id) else _with(state, event)


def is_drained(state: ControllerState, node: Node) -> bool:
    """Whether a draining node is in no in-sync set that it could leave: nothing is gained by waiting."""
    return all(
        node.id not in partition.isr or state.registrations.draining.issuperset(partition.isr)
        for _, partition in state.partitions.of_node(node.id)
    )


def _some(state: ControllerState, places: Iterable[PartitionId], nodes: Nodes) -> list[PartitionChanged]:
    alike, rules_of = ElectionCache(nodes), RulesOf(state)
    events: list[PartitionChanged] = []
    for place in places:
        partition = state.partitions.get(place)
        if partition is not None:
            events += alike.change(place, partition, rules_of[place.stream_id])
    return events


def _with(state: ControllerState, event: NodeEvent) -> list[Event]:
    return [event, *resettle(state, event.node_id, state.registrations.after(event))]


def resettle(state: ControllerState, node_id: int, nodes: Nodes, loss: Loss = Loss.NOTHING) -> list[PartitionChanged]:
    """The changes of a node's partitions, given the nodes and the node's loss.

    A node that may have lost a part counts as a holder only if no other is left; a node that has lost everything never
    does.
    """
    alike, rules_of = ElectionCache(nodes), RulesOf(state)
    blank = node_id if loss is Loss.ALL else None
    events: list[PartitionChanged] = []
    for place, partition in state.partitions.of_node(node_id):
        rules = rules_of[place.stream_id]
        lost = node_id if rules.loses(loss) and _others_hold(partition, node_id) else None
        events += alike.change(place, partition, rules, lost=lost, blank=blank)
    return events


def _others_hold(partition: PartitionState, node_id: int) -> bool:
    return any(member != node_id for member in (*partition.isr, *partition.elr))
