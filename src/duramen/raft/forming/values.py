"""Messages, stored state and effects of nodes that form a cluster. Pure values.

Both messages are requests; the response to either is a hello. They may be lost, delayed, duplicated and reordered.
"""

from typing import NamedTuple
from uuid import UUID, uuid5

from duramen.raft.voters import NO_VOTERS, ReplicaId, Voters

__all__ = [
    "Belongs",
    "ClusterProposal",
    "Effect",
    "FormationAttempt",
    "FormationDiskState",
    "FormationHello",
    "FormationReply",
    "Message",
    "PersistFormation",
    "ProposeCluster",
    "SendFormationMessage",
]


class FormationAttempt(NamedTuple):
    """One attempt of a node's directory to form a cluster.

    Each attempt has at most one proposal and its own cluster id.
    """

    proposer: ReplicaId
    number: int

    @property
    def cluster_id(self) -> UUID:
        """The unique id of the resulting cluster: directory ids are random, attempt numbers never reused."""
        return uuid5(UUID(self.proposer.directory_id), str(self.number))


class ClusterProposal(NamedTuple):
    """A proposed cluster with its first voters, which are all the seeds."""

    attempt: FormationAttempt
    seeds: tuple[str, ...]
    voters: Voters


class FormationDiskState(NamedTuple):
    """The disk state of the formation in a node's directory; the default is the state of an empty directory.

    `attempt` is the number of the node's own newest attempt. `promise` is another node's proposal that it has promised.
    With a `cluster_id` it belongs to this cluster for ever. `voters` are the first voters of the cluster; a node that
    joined later has none and learns them from the log. `replaces`: another directory of this node was a voter when the
    node joined, and this directory is to replace it.
    """

    attempt: int = 0
    promise: ClusterProposal | None = None
    cluster_id: UUID | None = None
    voters: Voters = NO_VOTERS
    replaces: bool = False


class FormationHello(NamedTuple):
    """The identity and state of a node: the number of its own attempt, the attempt it has promised, its cluster."""

    sender: ReplicaId
    seeds: tuple[str, ...]
    attempt: int
    promised: FormationAttempt | None = None
    cluster_id: UUID | None = None


class ProposeCluster(NamedTuple):
    """Ask for a promise of this proposal. The sender is the proposer."""

    proposal: ClusterProposal


Message = FormationHello | ProposeCluster


class PersistFormation(NamedTuple):
    """Write and sync this state before the effects that follow."""

    kept: FormationDiskState


class SendFormationMessage(NamedTuple):
    """Send a request to the node at an address."""

    address: str
    message: Message


class FormationReply(NamedTuple):
    """Respond to this request."""

    request: object
    hello: FormationHello


class Belongs(NamedTuple):
    """The node belongs to the cluster from now on. Without voters it is a learner."""

    cluster_id: UUID
    voters: Voters


Effect = PersistFormation | SendFormationMessage | FormationReply | Belongs
