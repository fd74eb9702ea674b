"""Decides about registrations: whether a node may register, and the effects on its replicas. Pure.

A node is its id and the UUID of its data directory. Its process locks the directory, so another process with the same
directory is a restart, and the earlier process has ended. Another directory under the same id is a disk without the
data of that id: it is accepted only once the old one is silent.

A directory restored to an older state lacks records that it had acknowledged, and would still be trusted with them. So
the directory records the incarnations under which it was registered: one that lacks the last of them is an older copy.
"""

from typing import NamedTuple

from duramen.base.errors import (
    ClusterDiffers,
    DirectoryRolledBack,
    NodeDuplicate,
    NodeNotFound,
    RequestInvalid,
    UnsupportedFeature,
)
from duramen.metadata.events import Endpoint, Event, NodeFenced, NodeRegistered, NodeUnregistered
from duramen.metadata.fencing import resettle
from duramen.metadata.nodes import Node
from duramen.metadata.state import ControllerState
from duramen.metadata.stream_rules import Loss

__all__ = ["Registration", "register", "unregister"]


class Registration(NamedTuple):
    """A node's request to register.

    Ids are UUIDs, as text; the feature levels are the lowest and the highest it supports.

    `kept`: its directory has all writes of its last process, synced or not, as after an orderly stop. `tried` are the
    incarnations with which its directory was to be registered before, None if it records none. `damaged`: damage on its
    disk may have cost records that it acknowledged, so it leaves the in-sync sets that have other members.
    """

    node_id: int
    directory_id: str
    incarnation_id: str
    cluster_id: str = ""
    rack: str | None = None
    roles: tuple[str, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    least_feature_level: int = 0
    latest_feature_level: int = 0
    kept: bool = False
    tried: tuple[str, ...] | None = None
    damaged: bool = False


def register(
    state: ControllerState, registration: Registration, *, end_offset: int, is_live: bool, renews: int = 0
) -> list[Event]:
    """Register a node, fenced until it has caught up; a repeated registration needs no events.

    `end_offset` is the offset of the first event in the metadata log, `is_live` whether the session of the node's id is
    not over. `renews`: the process ends its own registration of that epoch, because its storage accepts writes again.
    Raises ClusterDiffers, DirectoryRolledBack, NodeDuplicate, UnsupportedFeature.
    """
    _check(state, registration)
    known = state.registrations.get(registration.node_id)
    if known is not None and known.directory_id != registration.directory_id and is_live:
        raise NodeDuplicate(
            f"node {registration.node_id} is already registered with the data directory {known.directory_id}; this one"
            f" is {registration.directory_id}: stop the other node, or use another node id"
        )
    if known is not None and _is_known(known, registration) and known.epoch != renews:
        return []
    if known is not None and _is_older(known, registration):
        raise DirectoryRolledBack(
            f"the data directory {registration.directory_id} of node {registration.node_id} is an older copy: it does"
            " not know its last"
            f" process {known.incarnation_id} (registration {known.epoch}). It may lack records that it"
            " has acknowledged since"
        )
    events = [] if known is None else _gone(state, known, registration)
    # The end of the log after the registration, so that a node with that applied offset knows it; never used twice.
    epoch = max(end_offset + len(events), state.registrations.highest_epoch) + 1
    return [*events, _registered(registration, epoch)]


def unregister(state: ControllerState, node_id: int) -> list[Event]:
    """Remove a node from the cluster. Raises NodeNotFound, or RequestInvalid while it is live or has replicas."""
    node = state.registrations.get(node_id)
    if node is None:
        raise NodeNotFound(f"node {node_id} is not registered")
    if not node.fenced:
        raise RequestInvalid(f"node {node_id} is live: stop it before it is unregistered")
    held = state.partitions.replica_count(node_id)
    if held:
        raise RequestInvalid(f"node {node_id} still holds replicas ({held}): move them to other nodes first")
    return [NodeUnregistered(node_id, node.epoch)]


def _check(state: ControllerState, registration: Registration) -> None:
    if registration.cluster_id != state.cluster_id:
        raise ClusterDiffers(
            f"node {registration.node_id} is of the cluster {registration.cluster_id or 'none'}; this is"
            f" {state.cluster_id or 'none'}"
        )
    if not registration.least_feature_level <= state.feature_level <= registration.latest_feature_level:
        raise UnsupportedFeature(
            f"node {registration.node_id} knows the feature levels {registration.least_feature_level} to"
            f" {registration.latest_feature_level};"
            f" that of the cluster is {state.feature_level}"
        )
    same = state.registrations.of_directory(registration.directory_id)
    if same is not None and same.id != registration.node_id:
        raise NodeDuplicate(
            f"the data directory {registration.directory_id} is that of node {same.id}: it cannot be node"
            f" {registration.node_id}"
        )


def _gone(state: ControllerState, known: Node, registration: Registration) -> list[Event]:
    """The events for the end of the previous registration."""
    loss = Loss.MEMORY if registration.kept else Loss.UNSYNCED
    if known.directory_id != registration.directory_id:
        loss = Loss.ALL
    elif registration.damaged:
        loss = Loss.DAMAGED
    elif known.incarnation_id == registration.incarnation_id:
        loss = Loss.NOTHING
    fenced: list[Event] = [] if known.fenced else [NodeFenced(known.id, known.epoch)]
    nodes = state.registrations.after(NodeFenced(known.id, known.epoch))
    return [*fenced, *resettle(state, known.id, nodes, loss)]


def _registered(registration: Registration, epoch: int) -> NodeRegistered:
    return NodeRegistered(
        registration.node_id,
        registration.directory_id,
        registration.incarnation_id,
        epoch,
        registration.rack,
        registration.roles,
        registration.endpoints,
        registration.least_feature_level,
        registration.latest_feature_level,
        fenced=True,
        remembers=registration.tried is not None,
    )


def _is_older(node: Node, registration: Registration) -> bool:
    """Whether the directory was restored to a state before the node's last registration."""
    if node.directory_id != registration.directory_id or not node.remembers:
        return False
    return node.incarnation_id not in (registration.incarnation_id, *(registration.tried or ()))


def _is_known(node: Node, registration: Registration) -> bool:
    """Whether the node is registered like that already."""
    again = Node.of(_registered(registration, node.epoch))
    return again._replace(fenced=node.fenced, draining=node.draining, unwritable=node.unwritable) == node
