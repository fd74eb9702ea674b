"""Requests and responses of the cluster routes as types: checked on input, JSON on output."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

__all__ = [
    "INT32_MAX",
    "MOST_PLACES",
    "ClusterInfo",
    "ClusterNode",
    "ClusterNodes",
    "ConfigChange",
    "ElectionRequest",
    "FeatureLevelRequest",
    "MoveInfo",
    "MoveRequest",
    "MovesRequest",
    "PartitionOutcome",
    "PartitionOutcomes",
    "PartitionPlace",
    "PartitionsInfo",
    "PlacesInfo",
    "PlanInfo",
    "PlanRequest",
    "ProgressInfo",
    "QuorumInfo",
    "QuorumReplica",
    "ReassignmentInfo",
    "ReassignmentList",
    "ReassignmentRequest",
    "ReassignmentsRequest",
    "StepRequest",
    "SurveyInfo",
    "SurveyRequest",
    "SurveyedPartition",
    "UpgradeInfo",
    "VoterRequest",
]

MOST_PLACES: Final = 100
"""Partitions that a summary names of each kind."""

_MOST_AT_ONCE: Final = 10_000
INT32_MAX: Final = (1 << 31) - 1
"""The largest node id, partition and feature level."""

NodeId = Annotated[int, Meta(ge=0, le=INT32_MAX)]


class QuorumReplica(msgspec.Struct):
    """A replica of the metadata log. Fields that only the leader knows are null elsewhere; times are ms since 1970."""

    node_id: int
    directory_id: str
    end_offset: int | None
    synced_offset: int | None
    lag: int | None
    fetched_ms: int | None
    caught_up_ms: int | None


class QuorumInfo(msgspec.Struct):
    """The controller quorum.

    If `from_leader` is false, its leader did not answer, and this is the answering node's own knowledge.
    """

    leader_id: int | None
    epoch: int
    high_watermark: int
    from_leader: bool
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]


class ClusterNode(msgspec.Struct):
    """A node: `live`, `draining`, `unwritable` (its storage takes no writes) or `fenced`.

    `applied_offset` is the offset up to which it has applied the metadata log, if known. `read_replicas` counts
    replicas of streams with `read.replicas`, which `replicas` leaves out.
    """

    id: int
    state: str
    rack: str | None
    epoch: int
    roles: list[str]
    endpoints: dict[str, str]
    votes: bool
    leaders: int
    replicas: int
    read_replicas: int
    applied_offset: int | None


class ClusterNodes(msgspec.Struct):
    """The registered nodes."""

    nodes: list[ClusterNode]


class PartitionPlace(msgspec.Struct, forbid_unknown_fields=True):
    """A partition of a stream."""

    stream: str
    partition: Annotated[int, Meta(ge=0, le=INT32_MAX)]


class PlacesInfo(msgspec.Struct):
    """The number of these partitions, and the first of them."""

    count: int
    first: list[PartitionPlace]


class PartitionsInfo(msgspec.Struct):
    """The number of partitions, and those without a leader, with replicas out of sync, or being reassigned."""

    count: int
    leaderless: PlacesInfo
    under_replicated: PlacesInfo
    moving: PlacesInfo


class ClusterInfo(msgspec.Struct):
    """A cluster at a glance, as the node that answers knows it; `alone`: the node is standalone."""

    cluster_id: str
    node_id: int
    alone: bool
    feature_level: int
    quorum: QuorumInfo
    nodes: list[ClusterNode]
    partitions: PartitionsInfo


class ElectionRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The partitions whose leaders to elect; null: all. The preferred replica becomes leader, or the node `leader`.

    With `unclean` the most complete live replica of a partition without a leader becomes leader; acknowledged records
    that it lacks are lost.
    """

    partitions: list[PartitionPlace] | None = None
    leader: NodeId | None = None
    unclean: bool = False


class SurveyRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The partitions to plan unclean elections for; null: all without a leader."""

    partitions: list[PartitionPlace] | None = None


class SurveyedPartition(msgspec.Struct):
    """The result that an unclean election of a partition would have. `leader` is null if no replica answered.

    `known_end` is the highest end or high watermark that any replica knows; `records_lost` records below it would be
    lost. Records that only the `silent_nodes` have would be lost too and are not counted.
    """

    stream: str
    partition: int
    leader: int | None
    leader_epoch: int | None
    end_offset: int | None
    known_end: int
    records_lost: int
    silent_nodes: list[int]


class SurveyInfo(msgspec.Struct):
    """Partitions without a leader."""

    partitions: list[SurveyedPartition]


class PartitionOutcome(msgspec.Struct):
    """The outcome for one partition: `error` is the id of the error, null if it succeeded."""

    stream: str
    partition: int
    error: str | None = None
    detail: str | None = None


class PartitionOutcomes(msgspec.Struct):
    """The outcome for each partition."""

    partitions: list[PartitionOutcome]


class ReassignmentRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The new replicas of a partition, the preferred leader first; null cancels its reassignment."""

    stream: str
    partition: Annotated[int, Meta(ge=0, le=INT32_MAX)]
    replicas: list[NodeId] | None


class ReassignmentsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Reassignments to start or to cancel."""

    partitions: list[ReassignmentRequest]


class ReassignmentInfo(msgspec.Struct):
    """A partition that is being reassigned."""

    stream: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]


class ReassignmentList(msgspec.Struct):
    """The reassignments in progress."""

    reassignments: list[ReassignmentInfo]


class PlanRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Options of a plan: the nodes to empty besides spreading replicas."""

    without_nodes: list[NodeId] = []


class MoveInfo(msgspec.Struct):
    """A planned reassignment of a partition: replicas before and after, the reasons, the number of copies to make."""

    stream: str
    partition: int
    before: list[int]
    after: list[int]
    reasons: list[str]
    copies: int


class PlanInfo(msgspec.Struct):
    """A plan; nothing has changed yet.

    Partitions in `kept` stay on a node that should be emptied, because no other node can take them. Those in
    `leaderless` stay there because they have no leader to copy from.
    """

    moves: list[MoveInfo]
    kept: PlacesInfo
    leaderless: PlacesInfo


class MoveRequest(msgspec.Struct):
    """A move of a plan; its other fields are ignored."""

    stream: str
    partition: Annotated[int, Meta(ge=0, le=INT32_MAX)]
    before: list[NodeId]
    after: list[NodeId]


class MovesRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Moves of a plan."""

    moves: list[MoveRequest]


class StepRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Moves of a plan, of which `at_once` should be in progress; the request is repeated until all are done."""

    moves: list[MoveRequest]
    at_once: Annotated[int, Meta(ge=1, le=_MOST_AT_ONCE)] = 10


class ProgressInfo(msgspec.Struct):
    """The number of moves that are done, in progress, waiting and void.

    A move is void if its partition has changed since or was deleted. `leaderless` are partitions of moves in progress
    or waiting that have no leader; they cannot be copied until they have one.
    """

    done: int
    moving: int
    waiting: int
    void: int
    leaderless: PlacesInfo


class VoterRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The node to make a voter."""

    node_id: NodeId


class ConfigChange(msgspec.Struct):
    """A config that a stream does not set and whose default changes."""

    stream: str
    config: str
    before: int
    after: int


class UpgradeInfo(msgspec.Struct):
    """The feature level, the highest level that all nodes support, and what raising it changes.

    `older_nodes` run an older version than the answering node.
    """

    level: int
    highest_level: int
    older_nodes: list[int]
    changes: list[ConfigChange]


class FeatureLevelRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The feature level to raise the cluster to."""

    level: Annotated[int, Meta(ge=0, le=INT32_MAX)]
