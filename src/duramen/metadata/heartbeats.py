"""Decides a heartbeat: whether the node is fenced, unfenced, drained, or may stop (KIP-631). Pure."""

from typing import NamedTuple

from duramen.base.errors import NodeEpochStale, NodeNotFound
from duramen.metadata.events import Event
from duramen.metadata.fencing import drain, fence, has_many, is_drained, unfence
from duramen.metadata.nodes import Node
from duramen.metadata.sessions import Membership
from duramen.metadata.state import ControllerState

__all__ = ["Heartbeat", "HeartbeatVerdict", "heartbeat", "registered_node", "unwritable_node"]


class Heartbeat(NamedTuple):
    """A heartbeat of a node, in the registration that it knows as its own.

    It has applied the metadata log below `applied_offset`. `wants_fence`: it must not lead.
    """

    node_id: int
    epoch: int
    applied_offset: int
    wants_fence: bool = False
    wants_shutdown: bool = False


def unwritable_node(state: ControllerState, beat: Heartbeat) -> list[Event]:
    """The events of a heartbeat that reports a storage without writes: other nodes become leaders.

    The node stays live if it is the only one to read from. Raises NodeNotFound, NodeEpochStale.
    """
    return drain(state, registered_node(state, beat.node_id, beat.epoch), unwritable=True)


class HeartbeatVerdict(NamedTuple):
    """The events to commit before the response, and the response."""

    events: list[Event]
    fenced: bool
    caught_up: bool
    may_stop: bool = False


def registered_node(state: ControllerState, node_id: int, epoch: int) -> Node:
    """The node, if that is its registration. Raises NodeNotFound, NodeEpochStale."""
    node = state.registrations.get(node_id)
    if node is None:
        raise NodeNotFound(f"node {node_id} is not registered")
    if node.epoch != epoch:
        raise NodeEpochStale(f"the epoch of node {node_id} is {node.epoch}, not {epoch}")
    return node


def heartbeat(
    state: ControllerState, membership: Membership, beat: Heartbeat, *, end_offset: int, now_ms: int
) -> HeartbeatVerdict:
    """Handle a heartbeat; `end_offset` is the end of the metadata log. Raises NodeNotFound, NodeEpochStale."""
    node = registered_node(state, beat.node_id, beat.epoch)
    membership.heard(node.id, now_ms, beat.applied_offset)
    caught_up = beat.applied_offset >= node.epoch
    if node.fenced:
        if beat.wants_shutdown:
            return HeartbeatVerdict([], fenced=True, caught_up=caught_up, may_stop=True)
        if beat.wants_fence or not caught_up:
            return HeartbeatVerdict([], fenced=True, caught_up=caught_up)
        return HeartbeatVerdict(unfence(state, node), fenced=False, caught_up=True)
    if beat.wants_fence and not beat.wants_shutdown:
        return HeartbeatVerdict(fence(state, node), fenced=True, caught_up=caught_up)
    if beat.wants_shutdown:
        return _draining(state, membership, node, end_offset, caught_up=caught_up)
    return HeartbeatVerdict([], fenced=False, caught_up=caught_up)


def _draining(
    state: ControllerState, membership: Membership, node: Node, end_offset: int, *, caught_up: bool
) -> HeartbeatVerdict:
    """First leadership moves. Once all live nodes know that, the node is fenced: no client notices its stop."""
    if not node.draining:
        events = drain(state, node)
        if not has_many(state, node.id):
            membership.drains(node.id, end_offset + len(events))
        return HeartbeatVerdict(events, fenced=False, caught_up=caught_up)
    live = [other.id for other in state.registrations if not other.fenced]
    if is_drained(state, node) and membership.know(live, membership.drains(node.id, end_offset)):
        return HeartbeatVerdict(fence(state, node), fenced=True, caught_up=caught_up, may_stop=True)
    return HeartbeatVerdict([], fenced=False, caught_up=caught_up)
