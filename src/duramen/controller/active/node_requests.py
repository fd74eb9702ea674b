"""Requests of nodes for themselves: from a request and pending changes to the response. Pure."""

from collections.abc import Sequence

from duramen.base.errors import NodeNotFound
from duramen.broker.control.requests import AlterPartitions, Beat, Register, ReportDamage, ReportLeaders
from duramen.broker.control.responses import Beaten, Block, Done, Isr, IsrAnswers, Registered
from duramen.controller.active.pending_changes import PendingChanges
from duramen.controller.active.sessions import NodeSessions
from duramen.metadata.alter_partition import AlterPartitionRefusal, InSyncProposal, alter_partition
from duramen.metadata.decisions import allocate_producer_ids
from duramen.metadata.fencing import fence, leave, let_go
from duramen.metadata.heartbeats import heartbeat, registered_node, unwritable_node
from duramen.metadata.leader_reports import depose, lose_records
from duramen.metadata.nodes import Node
from duramen.metadata.partitions import PartitionId
from duramen.metadata.registration import register

__all__ = [
    "allocate_ids",
    "alter_partitions",
    "beat",
    "fence_silent",
    "leave_silent",
    "let_go_draining",
    "register_node",
    "report_damage",
    "report_leaders",
]


def register_node(request: Register, draft: PendingChanges, sessions: NodeSessions, now_ms: int) -> Registered:
    """Accept a registration; the node's session starts. Raises like `register`.

    The session starts before the commit: meanwhile another directory under the same id must be refused.
    """
    registration = request.registration
    is_live = sessions.members.is_live(registration.node_id, now_ms)
    events = register(draft.state, registration, end_offset=draft.end_offset, is_live=is_live, renews=request.renews)
    draft.add(events)
    sessions.members.registered(registration.node_id, now_ms)
    node = draft.state.registrations.get(registration.node_id)
    if node is None:
        raise NodeNotFound(f"node {registration.node_id} is not registered")
    return Registered(node.epoch)


def beat(request: Beat, draft: PendingChanges, sessions: NodeSessions, now_ms: int) -> Beaten:
    """Handle a heartbeat. Raises NodeNotFound, NodeEpochStale.

    A fenced node stays fenced until it has applied everything that all live nodes are said to know.
    """
    beat_ = request.beat
    if request.unwritable:
        draft.add(unwritable_node(draft.state, beat_))
    node = registered_node(draft.state, beat_.node_id, beat_.epoch)
    behind = beat_.applied_offset < sessions.known_offset
    if node.fenced and behind:
        beat_ = beat_._replace(wants_fence=True)
    verdict = heartbeat(draft.state, sessions.members, beat_, end_offset=draft.end_offset, now_ms=now_ms)
    draft.add(verdict.events)
    return Beaten(verdict.fenced, verdict.caught_up and not (node.fenced and behind), verdict.may_stop)


def alter_partitions(request: AlterPartitions, draft: PendingChanges) -> IsrAnswers:
    """Handle the proposals of leaders, one after another."""
    return IsrAnswers(tuple(_alter(proposal, draft) for proposal in request.proposals))


def _alter(proposal: InSyncProposal, draft: PendingChanges) -> Isr:
    altered = alter_partition(draft.state, proposal)
    if isinstance(altered, AlterPartitionRefusal):
        return Isr(altered)
    draft.add(altered.events)
    return Isr(None, draft.state.partitions.get(proposal.place), altered.new_leader)


def report_leaders(request: ReportLeaders, draft: PendingChanges, sessions: NodeSessions, now_ms: int) -> Done:
    """Handle reports of leaders that do not respond; a leader with enough reports loses leadership.

    Raises NodeNotFound, NodeEpochStale if the reporter's registration is stale. Reports of fenced nodes are ignored.
    """
    reporter = registered_node(draft.state, *request.reporter)
    for place, leader_epoch in request.reports:
        partition = draft.state.partitions.get(place)
        if partition is None or reporter.fenced:
            continue
        if sessions.reports.report(place, partition, reporter.id, leader_epoch, now_ms):
            draft.add(depose(draft.state, place))
    return Done()


def report_damage(request: ReportDamage, draft: PendingChanges) -> Done:
    """Exclude a node's damaged replicas from in-sync sets. Raises NodeNotFound, NodeEpochStale."""
    reporter = registered_node(draft.state, *request.reporter)
    for place in request.places:
        draft.add(lose_records(draft.state, place, reporter.id))
    return Done()


def allocate_ids(draft: PendingChanges) -> Block:
    """The next block of producer ids."""
    (event,) = allocate_producer_ids(draft.state)
    draft.add([event])
    return Block(event.first, event.count)


def fence_silent(node_id: int, draft: PendingChanges) -> Done:
    """Fence a node whose session is over."""
    node = draft.state.registrations.get(node_id)
    if node is not None:
        draft.add(fence(draft.state, node))
    return Done()


def leave_silent(node: Node, places: Sequence[PartitionId], draft: PendingChanges) -> Done:
    """Move some of its partitions off a node whose session is over, unless it has registered again since."""
    if _is_there(node, draft):
        draft.add(leave(draft.state, node, places))
    return Done()


def let_go_draining(node: Node, places: Sequence[PartitionId], draft: PendingChanges) -> Done:
    """Move some of its partitions off a draining node, unless it has registered again since."""
    if _is_there(node, draft):
        draft.add(let_go(draft.state, places))
    return Done()


def _is_there(node: Node, draft: PendingChanges) -> bool:
    known = draft.state.registrations.get(node.id)
    return known is not None and known.epoch == node.epoch and not known.fenced
