"""Admin requests of users: from a request and pending changes to the response. Pure."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from duramen.base.errors import NodeNotFound
from duramen.base.ids import StreamId
from duramen.broker.control import requests
from duramen.broker.control.responses import Created, Done, Planned, Stepped, Value
from duramen.controller.active.pending_changes import PendingChanges
from duramen.metadata import decisions
from duramen.metadata.bootstrap import adopt, set_feature_level
from duramen.metadata.decisions import configure_group, configure_node, record_gap
from duramen.metadata.elections import elect_preferred, elect_unclean, move_leader, rebalance_leaders
from duramen.metadata.events import Event
from duramen.metadata.fencing import drain
from duramen.metadata.quotas import alter_quotas
from duramen.metadata.reassignment import cancel, reassign
from duramen.metadata.rebalance import begin_moves, cancel_moves, plan, progress
from duramen.metadata.registration import unregister
from duramen.metadata.state import ControllerState
from duramen.metadata.streams import configure_cluster, configure_replicated, create_replicated, grow_replicated
from duramen.metadata.tenant_names import release_tenant, reserve_tenant

__all__ = ["create_stream", "delete_stream", "grant"]


def create_stream(
    request: requests.CreateStream, draft: PendingChanges, stream_id: StreamId, now_ms: int, secret: bytes
) -> Created:
    """Create a stream, at `now_ms` since 1970; `secret` as of `create_replicated`. Raises like that."""
    events = create_replicated(
        draft.state,
        request.definition,
        stream_id=stream_id,
        now_ms=now_ms,
        secret=secret,
        replication_factor=request.replication_factor,
        assignment=request.assignment,
        idempotent=request.idempotent,
        largest_size=request.largest_size,
    )
    draft.add(events)
    return Created(draft.state.streams[request.definition.name].id, existed=not events)


def delete_stream(request: requests.DeleteStream, draft: PendingChanges, now_ms: int, producers_ms: int) -> Done:
    """Delete a stream, at `now_ms` since 1970. Raises like `decisions.delete_stream`."""
    draft.add(decisions.delete_stream(draft.state, request.name, now_ms=now_ms, producers_ms=producers_ms))
    return Done()


def grant(request: requests.Request, draft: PendingChanges) -> Value:
    """Decide a user's request, except for the creation and deletion of streams.

    Raises like the decision of `controller`.
    """
    if isinstance(request, requests.PlanMoves):
        return Planned(tuple(plan(draft.state, request.without_nodes)))
    if isinstance(request, requests.RebalanceLeaders):
        moved = rebalance_leaders(draft.state, request.most)
        draft.add(moved)
        return Stepped(len(moved))
    draft.add(_DECISIONS[type(request)](draft.state, request))
    if isinstance(request, requests.BeginMoves | requests.CancelMoves):
        return Stepped(*progress(draft.state, request.moves))
    return Done()


def _elect(state: ControllerState, request: requests.ElectLeader) -> list[Any]:
    if request.unclean:
        return [*elect_unclean(state, request.place, request.most_complete)]
    return [*elect_preferred(state, request.place)]


def _configure_node(state: ControllerState, request: requests.ConfigureNode) -> list[Any]:
    if request.node_id is None:
        return configure_cluster(state, request.changes, whole=request.whole)
    return configure_node(state, request.node_id, request.changes, whole=request.whole)


def _drain(state: ControllerState, request: requests.DrainNode) -> list[Event]:
    node = state.registrations.get(request.node_id)
    if node is None:
        raise NodeNotFound(f"node {request.node_id} is not registered")
    return drain(state, node)


_DECISIONS: Final[Mapping[type, Callable[[ControllerState, Any], list[Any]]]] = MappingProxyType(
    {
        requests.Adopt: lambda state, request: adopt(state, request.node_id, request.leader_epoch),
        requests.GrowStream: lambda state, request: grow_replicated(
            state, request.name, request.partitions, assignment=request.assignment, largest_size=request.largest_size
        ),
        requests.ConfigureStream: lambda state, request: configure_replicated(
            state, request.name, request.changes, whole=request.whole
        ),
        requests.ConfigureNode: _configure_node,
        requests.ConfigureGroup: lambda state, request: configure_group(state, request.group, request.changes),
        requests.AlterQuotas: lambda state, request: alter_quotas(state, request.entity, request.changes),
        requests.ReserveTenant: lambda state, request: reserve_tenant(state, request.account, request.tenant),
        requests.ReleaseTenant: lambda state, request: release_tenant(
            state, request.account, request.tenant, request.number
        ),
        requests.RecordGap: lambda state, gap: record_gap(
            state, gap.node_id, gap.start_ms, gap.end_ms, gap.cause, gap.stream_id
        ),
        requests.ElectLeader: _elect,
        requests.MoveLeader: lambda state, request: move_leader(
            state, request.place, request.node_id, slow=request.slow
        ),
        requests.Reassign: lambda state, request: reassign(state, request.place, request.replicas),
        requests.CancelReassignment: lambda state, request: cancel(state, request.place),
        requests.BeginMoves: lambda state, request: begin_moves(state, request.moves, request.at_once),
        requests.CancelMoves: lambda state, request: cancel_moves(state, request.moves),
        requests.DrainNode: _drain,
        requests.UnregisterNode: lambda state, request: unregister(state, request.node_id),
        requests.SetFeatureLevel: lambda state, request: set_feature_level(state, request.level),
    }
)
