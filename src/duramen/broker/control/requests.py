"""Requests to the active controller, as values that can be sent. Pure.

Nodes send `Register`, `Beat`, `AlterPartitions`, `ReportLeaders` and `AllocateProducerIds` for themselves. The others
are requests of users, which any node accepts and forwards.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from duramen.metadata.alter_partition import InSyncMember, InSyncProposal
from duramen.metadata.decisions import Definition
from duramen.metadata.heartbeats import Heartbeat
from duramen.metadata.partitions import PartitionId
from duramen.metadata.rebalance import ReplicaMove
from duramen.metadata.registration import Registration
from duramen.raft.voters import ReplicaId, Voter

__all__ = [
    "REGISTRATION_FIELD",
    "AddVoter",
    "Adopt",
    "AllocateProducerIds",
    "AlterPartitions",
    "AlterQuotas",
    "AwaitApplied",
    "Beat",
    "BeginMoves",
    "CancelMoves",
    "CancelReassignment",
    "ConfigureGroup",
    "ConfigureNode",
    "ConfigureStream",
    "CreateStream",
    "DeleteStream",
    "DrainNode",
    "ElectLeader",
    "GrowStream",
    "MoveLeader",
    "Observe",
    "PlanMoves",
    "Reassign",
    "RebalanceLeaders",
    "RecordGap",
    "Register",
    "ReleaseTenant",
    "RemoveVoter",
    "Report",
    "ReportDamage",
    "ReportLeaders",
    "Request",
    "ReserveTenant",
    "SetFeatureLevel",
    "UnregisterNode",
]


REGISTRATION_FIELD: Final = "wish"
"""The name of a registration or of a definition of a stream in messages between nodes."""


class _Request(msgspec.Struct, frozen=True, tag_field="request"):
    """Base of the requests."""


class Register(_Request, frozen=True):
    """A node registers; `renews` is the epoch of its earlier registration, which ends with that, if any."""

    registration: Registration = msgspec.field(name=REGISTRATION_FIELD)
    renews: int = 0


class Beat(_Request, frozen=True):
    """A heartbeat; `unwritable`: the node's storage accepts no writes."""

    beat: Heartbeat
    unwritable: bool = False


class AlterPartitions(_Request, frozen=True):
    """A leader proposes in-sync sets of several partitions; each is accepted or refused on its own."""

    proposals: tuple[InSyncProposal, ...]


class Report(NamedTuple):
    """A leader that does not answer, and the epoch in which it leads."""

    place: PartitionId
    leader_epoch: int


class ReportLeaders(_Request, frozen=True):
    """A follower in sync cannot reach the leaders of these partitions."""

    reporter: InSyncMember
    reports: tuple[Report, ...]


class ReportDamage(_Request, frozen=True):
    """Damage on the disk of the reporter has cost its replicas of these partitions records."""

    repeats = True

    reporter: InSyncMember
    places: tuple[PartitionId, ...]


class AllocateProducerIds(_Request, frozen=True):
    """A block of ids for producers."""


class Adopt(_Request, frozen=True):
    """A node that was alone brings its streams: it is their replica, and leads in that epoch, above any before."""

    node_id: int
    leader_epoch: int


class CreateStream(_Request, frozen=True):
    """Create a stream with that many replicas, or with those of `assignment`, by partition.

    With `idempotent`, an existing stream with the same definition succeeds too. `largest_size` is the bound of
    `create_replicated`.
    """

    definition: Definition = msgspec.field(name=REGISTRATION_FIELD)
    replication_factor: int = 1
    assignment: tuple[tuple[int, ...], ...] | None = None
    idempotent: bool = False
    largest_size: int | None = None


class GrowStream(_Request, frozen=True):
    """Increase the number of partitions of a stream; `assignment` is for the new ones."""

    name: str
    partitions: int
    assignment: tuple[tuple[int, ...], ...] | None = None
    largest_size: int | None = None


class ConfigureStream(_Request, frozen=True):
    """Change a stream's config; None sets a name back, `whole` all that are not named."""

    name: str
    changes: Mapping[str, str | None]
    whole: bool = False


class DeleteStream(_Request, frozen=True):
    """Delete a stream."""

    name: str


class ConfigureNode(_Request, frozen=True):
    """Change settings of a node while it runs; None: of every node. The values were checked."""

    node_id: int | None
    changes: Mapping[str, str | None]
    whole: bool = False


class ConfigureGroup(_Request, frozen=True):
    """Change the config of a group. The values were checked."""

    group: str
    changes: Mapping[str, str | None]


class AlterQuotas(_Request, frozen=True):
    """Set quotas of an entity, in bytes a second; None removes one."""

    entity: tuple[tuple[str, str | None], ...]
    changes: Sequence[tuple[str, float | None]]


class ReserveTenant(_Request, frozen=True):
    """Reserve the name of a tenant of the inventory: no stream may be called as its topics are."""

    account: str
    tenant: str


class ReleaseTenant(_Request, frozen=True):
    """A tenant is gone: its name is free again, unless it was reserved under another number since."""

    account: str
    tenant: str
    number: int


class RecordGap(_Request, frozen=True):
    """A node was not subscribed to the subjects of streams: from when to when (ms since 1970), and why.

    `stream_id` names one stream; empty: all.
    """

    node_id: int
    start_ms: int
    end_ms: int
    cause: str
    stream_id: str = ""


class ElectLeader(_Request, frozen=True):
    """Elect the preferred replica as leader; `unclean`: elect a replica that may lack acknowledged records.

    `most_complete` is the live node whose replica reports the highest end offset.
    """

    place: PartitionId
    unclean: bool = False
    most_complete: int | None = None


class MoveLeader(_Request, frozen=True, omit_defaults=True):
    """Let a node that is in sync lead; `slow` is the one that led, which leaves the in-sync set if it can."""

    place: PartitionId
    node_id: int
    slow: int | None = None


class RebalanceLeaders(_Request, frozen=True):
    """Elect preferred leaders, at most that many."""

    most: int


class Reassign(_Request, frozen=True):
    """Let a partition have these replicas."""

    place: PartitionId
    replicas: tuple[int, ...]


class CancelReassignment(_Request, frozen=True):
    """Let a partition keep the replicas that it had."""

    place: PartitionId


class PlanMoves(_Request, frozen=True):
    """Plan how to spread the replicas over the nodes, and to empty those that are named; nothing is done."""

    without_nodes: tuple[int, ...] = ()


class BeginMoves(_Request, frozen=True):
    """Carry a plan on, so that `at_once` of its moves are under way; asked again until all are done."""

    moves: tuple[ReplicaMove, ...]
    at_once: int


class CancelMoves(_Request, frozen=True):
    """Cancel moves of a plan that are in progress."""

    moves: tuple[ReplicaMove, ...]


class DrainNode(_Request, frozen=True):
    """Move leadership off a node and keep it from becoming leader until it registers again."""

    node_id: int


class UnregisterNode(_Request, frozen=True):
    """Remove a stopped node from the cluster."""

    node_id: int


class SetFeatureLevel(_Request, frozen=True):
    """Let the cluster use the features of this level."""

    level: int


class AddVoter(_Request, frozen=True):
    """Let a replica that has caught up vote in the quorum (KIP-853)."""

    voter: Voter


class RemoveVoter(_Request, frozen=True):
    """Let a voter vote no more."""

    replica: ReplicaId


class Observe(_Request, frozen=True):
    """Request state that only the active controller has: the progress of quorum replicas and nodes."""


class AwaitApplied(_Request, frozen=True):
    """Respond once every live node has applied the log below the offset, or after `within_ms`."""

    offset: int
    within_ms: int


Request = (
    Register
    | Beat
    | AlterPartitions
    | ReportLeaders
    | ReportDamage
    | AllocateProducerIds
    | Adopt
    | CreateStream
    | GrowStream
    | ConfigureStream
    | DeleteStream
    | ConfigureNode
    | ConfigureGroup
    | AlterQuotas
    | ReserveTenant
    | ReleaseTenant
    | RecordGap
    | ElectLeader
    | MoveLeader
    | RebalanceLeaders
    | Reassign
    | CancelReassignment
    | PlanMoves
    | BeginMoves
    | CancelMoves
    | DrainNode
    | UnregisterNode
    | SetFeatureLevel
    | AddVoter
    | RemoveVoter
    | Observe
    | AwaitApplied
)
