"""What the routes of the cluster take and give, as types: checked on the way in, JSON on the way out."""

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
    "ElectionWish",
    "FeatureLevelWish",
    "MoveInfo",
    "MoveWish",
    "MovesWish",
    "PartitionOutcome",
    "PartitionOutcomes",
    "PartitionPlace",
    "PartitionsInfo",
    "PlacesInfo",
    "PlanInfo",
    "PlanWish",
    "ProgressInfo",
    "QuorumInfo",
    "QuorumReplica",
    "ReassignmentInfo",
    "ReassignmentList",
    "ReassignmentWish",
    "ReassignmentWishes",
    "StepWish",
    "SurveyInfo",
    "SurveyWish",
    "SurveyedPartition",
    "UpgradeInfo",
    "VoterWish",
]

MOST_PLACES: Final = 100
"""Partitions that a summary names of each kind."""

_MOST_AT_ONCE: Final = 10_000
INT32_MAX: Final = (1 << 31) - 1
"""The largest node id, partition and feature level."""

NodeId = Annotated[int, Meta(ge=0, le=INT32_MAX)]


class QuorumReplica(msgspec.Struct):
    """A replica of the metadata log. What only the leader knows is null elsewhere; times are ms since 1970."""

    node_id: int
    directory_id: str
    end_offset: int | None
    synced_offset: int | None
    lag: int | None
    fetched_ms: int | None
    caught_up_ms: int | None


class QuorumInfo(msgspec.Struct):
    """The quorum. `from_leader` false: nobody that leads has answered, and this is what the asked node knows alone."""

    leader_id: int | None
    epoch: int
    high_watermark: int
    from_leader: bool
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]


class ClusterNode(msgspec.Struct):
    """A node: `live`, `draining`, `unwritable` (its storage takes no writes) or `fenced`.

    `applied_offset` is how far it has applied the metadata log, if known. `read_replicas` are of streams with
    `read.replicas`, and no `replicas`.
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
    """The nodes that are registered."""

    nodes: list[ClusterNode]


class PartitionPlace(msgspec.Struct, forbid_unknown_fields=True):
    """A partition of a stream."""

    stream: str
    partition: Annotated[int, Meta(ge=0, le=INT32_MAX)]


class PlacesInfo(msgspec.Struct):
    """How many partitions are so, and the first of them."""

    count: int
    first: list[PartitionPlace]


class PartitionsInfo(msgspec.Struct):
    """All partitions: how many, those without a leader, with fewer replicas in sync than they have, being moved."""

    count: int
    leaderless: PlacesInfo
    under_replicated: PlacesInfo
    moving: PlacesInfo


class ClusterInfo(msgspec.Struct):
    """A cluster at a glance, as the asked node knows it; `alone`: the node is of no cluster."""

    cluster_id: str
    node_id: int
    alone: bool
    feature_level: int
    quorum: QuorumInfo
    nodes: list[ClusterNode]
    partitions: PartitionsInfo


class ElectionWish(msgspec.Struct, forbid_unknown_fields=True):
    """Whose leaders are to be elected: null, of all partitions. The preferred replica leads, or the node `leader`.

    `unclean`: where nobody leads, the most complete live replica does; the acknowledged records that it lacks are lost.
    """

    partitions: list[PartitionPlace] | None = None
    leader: NodeId | None = None
    unclean: bool = False


class SurveyWish(msgspec.Struct, forbid_unknown_fields=True):
    """Partitions that may be elected uncleanly: null, all that have no leader."""

    partitions: list[PartitionPlace] | None = None


class SurveyedPartition(msgspec.Struct):
    """What an unclean election of a partition would do. `leader`, null: no replica has answered.

    `known_end` is the highest end or high watermark that any replica knows; `records_lost` of those below it are lost.
    What only the `silent_nodes` have is lost too, and is not known.
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
    """What became of one partition: `error` is the id of why nothing did, null where all is well."""

    stream: str
    partition: int
    error: str | None = None
    detail: str | None = None


class PartitionOutcomes(msgspec.Struct):
    """What became of each partition."""

    partitions: list[PartitionOutcome]


class ReassignmentWish(msgspec.Struct, forbid_unknown_fields=True):
    """The replicas that a partition is to have, the preferred leader first; null: those it had before it was moved."""

    stream: str
    partition: Annotated[int, Meta(ge=0, le=INT32_MAX)]
    replicas: list[NodeId] | None


class ReassignmentWishes(msgspec.Struct, forbid_unknown_fields=True):
    """Reassignments to begin, or to take back."""

    partitions: list[ReassignmentWish]


class ReassignmentInfo(msgspec.Struct):
    """A partition whose reassignment is under way."""

    stream: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]


class ReassignmentList(msgspec.Struct):
    """The reassignments that are under way."""

    reassignments: list[ReassignmentInfo]


class PlanWish(msgspec.Struct, forbid_unknown_fields=True):
    """What a plan is to do beside spreading replicas: empty these nodes."""

    without_nodes: list[NodeId] = []


class MoveInfo(msgspec.Struct):
    """A partition that is to have other replicas, why, and how many have to be copied."""

    stream: str
    partition: int
    before: list[int]
    after: list[int]
    reasons: list[str]
    copies: int


class PlanInfo(msgspec.Struct):
    """A plan: nothing is done yet. `kept` stay on a node that was to be emptied: no other node can take them.

    `leaderless` stay there too: they have no leader from which another node could copy them.
    """

    moves: list[MoveInfo]
    kept: PlacesInfo
    leaderless: PlacesInfo


class MoveWish(msgspec.Struct):
    """A move of a plan; what else the plan says of it does not matter."""

    stream: str
    partition: Annotated[int, Meta(ge=0, le=INT32_MAX)]
    before: list[NodeId]
    after: list[NodeId]


class MovesWish(msgspec.Struct, forbid_unknown_fields=True):
    """Moves of a plan."""

    moves: list[MoveWish]


class StepWish(msgspec.Struct, forbid_unknown_fields=True):
    """Moves of a plan, so many of which are to be under way; asked again until all are done."""

    moves: list[MoveWish]
    at_once: Annotated[int, Meta(ge=1, le=_MOST_AT_ONCE)] = 10


class ProgressInfo(msgspec.Struct):
    """How many moves are done, under way, not begun, and void: their partition has changed since, or is gone.

    `leaderless` are those under way or not begun that have no leader now: nobody can copy them until they have one.
    """

    done: int
    moving: int
    waiting: int
    void: int
    leaderless: PlacesInfo


class VoterWish(msgspec.Struct, forbid_unknown_fields=True):
    """The node that is to vote."""

    node_id: NodeId


class ConfigChange(msgspec.Struct):
    """A config of a stream that is not set, and whose default becomes another."""

    stream: str
    config: str
    before: int
    after: int


class UpgradeInfo(msgspec.Struct):
    """The feature level, the highest that all nodes know, and what changes with that.

    `older_nodes` run a version that knows less than the node that answers.
    """

    level: int
    highest_level: int
    older_nodes: list[int]
    changes: list[ConfigChange]


class FeatureLevelWish(msgspec.Struct, forbid_unknown_fields=True):
    """The level that the cluster is to use."""

    level: Annotated[int, Meta(ge=0, le=INT32_MAX)]
