"""The state of the cluster, and changes by operators. A standalone node answers as a cluster of one."""

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from duramen.base import errors
from duramen.base.errors import DuramenError, RequestInvalid, StreamNotFound
from duramen.base.hosts import host_port
from duramen.base.units import MIB
from duramen.broker.min_in_sync import MIN_IN_SYNC
from duramen.controller.admin.cluster import ClusterAdmin, Elected, QuorumView
from duramen.controller.admin.overview import faults, moving, nodes
from duramen.controller.admin.replica_survey import Survey
from duramen.controller.admin.upgrade import upgrade_of
from duramen.doors.completion import completion, outcome
from duramen.doors.http.cluster.types import (
    INT32_MAX,
    MOST_PLACES,
    ClusterInfo,
    ClusterNode,
    ClusterNodes,
    ConfigChange,
    ElectionRequest,
    FeatureLevelRequest,
    MoveInfo,
    MoveRequest,
    MovesRequest,
    PartitionOutcome,
    PartitionOutcomes,
    PartitionPlace,
    PartitionsInfo,
    PlacesInfo,
    PlanInfo,
    PlanRequest,
    ProgressInfo,
    QuorumInfo,
    QuorumReplica,
    ReassignmentInfo,
    ReassignmentList,
    ReassignmentsRequest,
    StepRequest,
    SurveyedPartition,
    SurveyInfo,
    SurveyRequest,
    UpgradeInfo,
    VoterRequest,
)
from duramen.doors.http.serving.routes import Call, HttpRoute, on_cluster
from duramen.metadata.nodes import Node
from duramen.metadata.partitions import PartitionId
from duramen.metadata.rebalance import MovesProgress, ReplicaMove
from duramen.metadata.state import ControllerState
from duramen.raft.description import UNKNOWN, ReplicaProgress
from duramen.service.authorize import Operation

__all__ = ["ROUTES", "addresses_of"]

T = TypeVar("T")

_NODE_ID: Final = re.compile("[0-9]{1,10}")
_VIEW_MS: Final = 2_000  # how long an operator waits for a leader before this node responds with its own knowledge
_LARGEST_PLAN_BYTES: Final = 4 * MIB


def addresses_of(node: Node) -> dict[str, str]:
    """The address of each door of a node, as it registered them."""
    return {one.name: host_port(one.host, one.port) for one in node.endpoints}


async def _answer(begin: Callable[[Callable[[T | DuramenError], None]], None]) -> T:
    """The value that `begin` passes to its callback. Raises it if it is an error."""
    future: asyncio.Future[T | DuramenError] = asyncio.get_running_loop().create_future()

    def done(answer: T | DuramenError) -> None:
        if not future.done():
            future.set_result(answer)

    begin(done)
    answer = await future
    if isinstance(answer, DuramenError):
        raise answer
    return answer


def _node_id(call: Call) -> int:
    text = call.path["id"]
    if not _NODE_ID.fullmatch(text) or int(text) > INT32_MAX:
        raise RequestInvalid(f"the id of a node is a number, not {text[:40]}; the largest is {INT32_MAX}")
    return int(text)


# -- health -------------------------------------------------------------------------------------------


async def _view(cluster_admin: ClusterAdmin) -> QuorumView:
    return await _answer(lambda done: cluster_admin.look(done, within_ms=_VIEW_MS))


async def _show(call: Call) -> ClusterInfo:
    broker, cluster_admin = call.broker, call.broker.membership.cluster_admin
    view = await _view(cluster_admin)
    found = faults(cluster_admin.state)
    return ClusterInfo(
        call.node.cluster_id,
        broker.node_id,
        not cluster_admin.state.cluster_id,
        cluster_admin.state.feature_level,
        _quorum(view),
        _nodes(cluster_admin, view),
        PartitionsInfo(
            found.partitions,
            _places(cluster_admin, found.leaderless),
            _places(cluster_admin, found.under_replicated),
            _places(cluster_admin, found.moving),
        ),
    )


def _places(cluster_admin: ClusterAdmin, places: Sequence[PartitionId]) -> PlacesInfo:
    return PlacesInfo(
        len(places), [PartitionPlace(cluster_admin.name(place), place.partition) for place in places[:MOST_PLACES]]
    )


def _known(value: int) -> int | None:
    return None if value == UNKNOWN else value


def _quorum(view: QuorumView) -> QuorumInfo:
    seen = view.observed
    ends = {row.replica.node_id: row.log_end_offset for row in seen.voters}
    end_offset = ends.get(seen.leader_id, UNKNOWN)
    return QuorumInfo(
        _known(seen.leader_id),
        seen.leader_epoch,
        seen.high_watermark,
        view.from_leader,
        [_replica(row, end_offset) for row in seen.voters],
        [_replica(row, end_offset) for row in seen.observers],
    )


def _replica(row: ReplicaProgress, end_offset: int) -> QuorumReplica:
    is_known = UNKNOWN not in (row.synced_offset, end_offset)
    return QuorumReplica(
        row.replica.node_id,
        row.replica.directory_id,
        _known(row.log_end_offset),
        _known(row.synced_offset),
        max(0, end_offset - row.synced_offset) if is_known else None,
        _known(row.fetched_ms),
        _known(row.caught_up_ms),
    )


def _nodes(cluster_admin: ClusterAdmin, view: QuorumView) -> list[ClusterNode]:
    voters = {row.replica.node_id for row in view.observed.voters}
    return [
        ClusterNode(
            load.node.id,
            load.state,
            load.node.rack,
            load.node.epoch,
            list(load.node.roles),
            addresses_of(load.node),
            load.node.id in voters,
            load.leaders,
            load.replicas,
            load.read_replicas,
            view.observed.applied.get(load.node.id),
        )
        for load in nodes(cluster_admin.state)
    ]  # fmt: skip


async def _list_nodes(call: Call) -> ClusterNodes:
    cluster_admin = call.broker.membership.cluster_admin
    return ClusterNodes(_nodes(cluster_admin, await _view(cluster_admin)))


async def _show_quorum(call: Call) -> QuorumInfo:
    return _quorum(await _view(call.broker.membership.cluster_admin))


# -- nodes and voters ---------------------------------------------------------------------------------


async def _drain(call: Call) -> None:
    cluster_admin, node_id = call.broker.membership.cluster_admin, _node_id(call)
    await completion(lambda done: cluster_admin.drain(node_id, done))


async def _remove(call: Call) -> None:
    cluster_admin, node_id = call.broker.membership.cluster_admin, _node_id(call)
    await completion(lambda done: cluster_admin.remove(node_id, done))


async def _add_voter(call: Call, body: VoterRequest) -> None:
    cluster_admin = call.broker.membership.cluster_admin
    await completion(lambda done: cluster_admin.add_voter(body.node_id, done))


async def _remove_voter(call: Call) -> None:
    cluster_admin, node_id = call.broker.membership.cluster_admin, _node_id(call)
    await completion(lambda done: cluster_admin.remove_voter(node_id, done))


async def _show_upgrade(call: Call) -> UpgradeInfo:
    found = upgrade_of(call.broker.membership.cluster_admin.state)
    changes = [ConfigChange(one.stream, MIN_IN_SYNC, one.before, one.after) for one in found.changes]
    return UpgradeInfo(found.level, found.highest_level, list(found.older), changes)


async def _set_feature_level(call: Call, body: FeatureLevelRequest) -> None:
    cluster_admin = call.broker.membership.cluster_admin
    await completion(lambda done: cluster_admin.set_feature_level(body.level, done))


# -- leaders ------------------------------------------------------------------------------------------


async def _elect(call: Call, body: ElectionRequest) -> PartitionOutcomes:
    cluster_admin = call.broker.membership.cluster_admin
    if body.leader is not None:
        return await _move_leaders(cluster_admin, body)
    if body.partitions is None:
        wanted = cluster_admin.electable(unclean=body.unclean)
    else:
        wanted = [cluster_admin.find(place.stream, place.partition) for place in body.partitions]
    elected: asyncio.Future[list[Elected]] = asyncio.get_running_loop().create_future()

    def done(found: list[Elected]) -> None:
        if not elected.done():
            elected.set_result(found)

    if body.unclean:
        cluster_admin.elect_unclean(await _surveyed(call, wanted), done)
    else:
        cluster_admin.elect(wanted, done)
    return PartitionOutcomes(
        [_outcome(cluster_admin.name(place), place.partition, error) for place, error in await elected]
    )


async def _surveyed(call: Call, places: Sequence[PartitionId]) -> list[Survey]:
    future: asyncio.Future[list[Survey]] = asyncio.get_running_loop().create_future()
    call.broker.completeness.survey(places, lambda found: None if future.done() else future.set_result(found))
    return await future


async def _survey(call: Call, body: SurveyRequest) -> SurveyInfo:
    cluster_admin = call.broker.membership.cluster_admin
    if body.partitions is None:
        wanted = cluster_admin.electable(unclean=True)
    else:
        named = [cluster_admin.find(place.stream, place.partition) for place in body.partitions]
        electable = frozenset(cluster_admin.electable(unclean=True))
        wanted = [place for place in named if place in electable]
    return SurveyInfo([_surveyed_partition(cluster_admin, one) for one in await _surveyed(call, wanted)])


def _surveyed_partition(cluster_admin: ClusterAdmin, survey: Survey) -> SurveyedPartition:
    best, place = survey.best, survey.place
    kept = None if best is None else survey.kept[best]
    return SurveyedPartition(
        cluster_admin.name(place), place.partition, best,
        None if kept is None else kept.leader_epoch, None if kept is None else kept.end_offset,
        survey.known_end, survey.lost, list(survey.silent),
    )  # fmt: skip


async def _move_leaders(cluster_admin: ClusterAdmin, election: ElectionRequest) -> PartitionOutcomes:
    node_id = election.leader
    if node_id is None or election.partitions is None or election.unclean:
        raise RequestInvalid("a `leader` is for `partitions` that are named, and is never unclean")
    found = []
    for place in [cluster_admin.find(one.stream, one.partition) for one in election.partitions]:
        error = await outcome(partial(cluster_admin.move_leader, place, node_id))
        found.append(_outcome(cluster_admin.name(place), place.partition, error))
    return PartitionOutcomes(found)


def _outcome(stream: str, partition: int, error: DuramenError | None) -> PartitionOutcome:
    if error is None:
        return PartitionOutcome(stream, partition)
    return PartitionOutcome(stream, partition, error.id, str(error))


# -- replicas -----------------------------------------------------------------------------------------


async def _list_reassignments(call: Call) -> ReassignmentList:
    cluster_admin = call.broker.membership.cluster_admin
    return ReassignmentList(
        [
            ReassignmentInfo(
                cluster_admin.name(place), place.partition, list(one.replicas), list(one.adding), list(one.removing)
            )
            for place, one in moving(cluster_admin.state)
        ]
    )


async def _reassign(call: Call, body: ReassignmentsRequest) -> PartitionOutcomes:
    cluster_admin = call.broker.membership.cluster_admin
    places = [cluster_admin.find(one.stream, one.partition) for one in body.partitions]
    found = []
    for place, wanted in zip(places, body.partitions, strict=True):
        error = await outcome(partial(cluster_admin.reassign, place, wanted.replicas))
        found.append(_outcome(wanted.stream, wanted.partition, error))
    return PartitionOutcomes(found)


async def _plan(call: Call, body: PlanRequest) -> PlanInfo:
    cluster_admin = call.broker.membership.cluster_admin
    planned: Sequence[ReplicaMove] = await _answer(lambda done: cluster_admin.plan(body.without_nodes, done))
    moves = [move for move in planned if not move.copies or _has_leader(cluster_admin.state, move.place)]
    return PlanInfo(
        [
            MoveInfo(
                cluster_admin.name(move.place), move.place.partition, list(move.before), list(move.after),
                [reason.value for reason in move.reasons], move.copies,
            )
            for move in moves
        ],
        _places(cluster_admin, _kept(cluster_admin.state, moves, frozenset(body.without_nodes))),
        _places(cluster_admin, _leaderless(cluster_admin.state, frozenset(body.without_nodes))),
    )  # fmt: skip


def _has_leader(state: ControllerState, place: PartitionId) -> bool:
    """Whether the partition has a leader to copy from."""
    partition = state.partitions.get(place)
    return partition is not None and partition.leader is not None


def _kept(state: ControllerState, moves: Iterable[ReplicaMove], emptied: Collection[int]) -> list[PartitionId]:
    """The partitions with a leader that still have a replica on one of these nodes after the moves."""
    after = {move.place: move.after for move in moves}
    return [
        place
        for place, partition in (state.partitions if emptied else ())
        if partition.leader is not None and any(one in emptied for one in after.get(place, partition.target))
    ]


def _leaderless(state: ControllerState, emptied: Collection[int]) -> list[PartitionId]:
    """The partitions without a leader that have a replica on one of these nodes."""
    return [
        place
        for place, partition in (state.partitions if emptied else ())
        if partition.leader is None and any(node_id in emptied for node_id in partition.replicas)
    ]


def _moves(cluster_admin: ClusterAdmin, wanted: Iterable[MoveRequest]) -> tuple[list[ReplicaMove], int]:
    """The moves, and the number of those whose stream was deleted."""
    moves, gone = [], 0
    for move in wanted:
        try:
            place = cluster_admin.find(move.stream, move.partition)
        except StreamNotFound:
            gone += 1
        else:
            moves.append(ReplicaMove(place, tuple(move.before), tuple(move.after), ()))
    return moves, gone


def _progress(
    cluster_admin: ClusterAdmin, moves: Iterable[ReplicaMove], progress: MovesProgress, gone: int
) -> ProgressInfo:
    partitions = cluster_admin.state.partitions
    states = ((move, partitions.get(move.place)) for move in moves)
    waiting = [
        move.place
        for move, one in states
        if one is not None and one.leader is None and (one.is_moving or one.target == move.before)
    ]
    places = _places(cluster_admin, waiting)
    return ProgressInfo(progress.done, progress.moving, progress.waiting, progress.void + gone, places)


async def _begin(call: Call, body: StepRequest) -> ProgressInfo:
    cluster_admin = call.broker.membership.cluster_admin
    moves, gone = _moves(cluster_admin, body.moves)
    step: MovesProgress = await _answer(lambda done: cluster_admin.begin(moves, body.at_once, done))
    return _progress(cluster_admin, moves, step, gone)


async def _show_progress(call: Call, body: MovesRequest) -> ProgressInfo:
    cluster_admin = call.broker.membership.cluster_admin
    moves, gone = _moves(cluster_admin, body.moves)
    return _progress(cluster_admin, moves, cluster_admin.progress(moves), gone)


async def _cancel(call: Call, body: MovesRequest) -> ProgressInfo:
    cluster_admin = call.broker.membership.cluster_admin
    moves, gone = _moves(cluster_admin, body.moves)
    step: MovesProgress = await _answer(lambda done: cluster_admin.cancel(moves, done))
    return _progress(cluster_admin, moves, step, gone)


def _plan_bytes(_: Call) -> int:
    return _LARGEST_PLAN_BYTES


_READS: Final = on_cluster(Operation.DESCRIBE)
_CHANGES: Final = on_cluster(Operation.ALTER)
_ASKING: Final = (errors.NotController, errors.OutcomeUnknown, errors.RequestInvalid)
_VOTING: Final = (errors.VoterDuplicate, errors.VoterNotFound, errors.VotersUnsettled)

ROUTES = (
    HttpRoute(
        "GET", "/v1/cluster", _show, _READS, "The cluster at a glance: quorum, nodes, partitions that need attention",
        (errors.NotController,),
    ),
    HttpRoute("GET", "/v1/cluster/nodes", _list_nodes, _READS, "The nodes of the cluster", (errors.NotController,)),
    HttpRoute(
        "POST", "/v1/cluster/nodes/{id}/drain", _drain, _CHANGES,
        "Move partition leadership off a node and keep it from becoming leader until it is restarted",
        (errors.NodeNotFound, *_ASKING), (204,),
    ),
    HttpRoute(
        "DELETE", "/v1/cluster/nodes/{id}", _remove, _CHANGES,
        "Remove a stopped node that holds no replicas from the cluster and from the voters",
        (errors.NodeNotFound, *_VOTING, *_ASKING), (204,),
    ),
    HttpRoute(
        "GET", "/v1/cluster/quorum", _show_quorum, _READS, "The controller quorum, as its leader sees it",
        (errors.NotController,),
    ),
    HttpRoute(
        "POST", "/v1/cluster/voters", _add_voter, _CHANGES, "Make a registered, caught-up node a voter",
        (errors.NodeNotFound, *_VOTING, *_ASKING), (204,),
    ),
    HttpRoute(
        "DELETE", "/v1/cluster/voters/{id}", _remove_voter, _CHANGES,
        "Remove a node from the voters", (*_VOTING, *_ASKING), (204,),
    ),
    HttpRoute(
        "GET", "/v1/cluster/feature-level", _show_upgrade, _READS,
        "The feature level of the cluster, the highest level that all nodes support, and what raising it changes",
    ),
    HttpRoute(
        "POST", "/v1/cluster/feature-level", _set_feature_level, _CHANGES,
        "Raise the feature level, at most to the highest that all nodes support; it cannot be lowered",
        (errors.UnsupportedFeature, *_ASKING), (204,),
    ),
    HttpRoute(
        "POST", "/v1/cluster/elections", _elect, _CHANGES,
        "Elect leaders: the preferred replicas, a given node, or, for partitions without a leader, any live replica",
        (errors.StreamNotFound,),
    ),
    HttpRoute(
        "POST", "/v1/cluster/elections/unclean/plan", _survey, _READS,
        "The leaders that an unclean election would choose and the records it would lose; nothing is changed",
        (errors.StreamNotFound,),
    ),
    HttpRoute("GET", "/v1/cluster/reassignments", _list_reassignments, _READS, "Reassignments in progress"),
    HttpRoute(
        "POST", "/v1/cluster/reassignments", _reassign, _CHANGES, "Reassign replicas of partitions, or cancel "
        "reassignments",
        (errors.StreamNotFound,),
    ),
    HttpRoute(
        "POST", "/v1/cluster/rebalance/plan", _plan, _READS,
        "Plan how to spread replicas and leaders over the nodes, or to empty some nodes; nothing is changed",
        (errors.NodeNotFound, *_ASKING),
    ),
    HttpRoute(
        "POST", "/v1/cluster/rebalance/begin", _begin, _CHANGES,
        "Start moves of a plan, until `at_once` of them are in progress",
        (errors.ReplicaAssignmentInvalid, *_ASKING), body_limit_bytes=_plan_bytes,
    ),
    HttpRoute(
        "POST", "/v1/cluster/rebalance/progress", _show_progress, _READS, "The progress of a plan",
        body_limit_bytes=_plan_bytes,
    ),
    HttpRoute(
        "POST", "/v1/cluster/rebalance/cancel", _cancel, _CHANGES, "Cancel the moves of a plan in progress", _ASKING,
        body_limit_bytes=_plan_bytes,
    ),
)  # fmt: skip
