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
    """One try of a node's directory to form a cluster. Each has at most one proposal, and a cluster id of its own."""

    proposer: ReplicaId
    number: int

    @property
    def cluster_id(self) -> UUID:
        """The id of the cluster that comes of it: a directory's id is random, and never counts twice."""
        return uuid5(UUID(self.proposer.directory_id), str(self.number))


class ClusterProposal(NamedTuple):
    """A cluster that may be: its first voters, who are all that the seeds named."""

    attempt: FormationAttempt
    seeds: tuple[str, ...]
    voters: Voters


class FormationDiskState(NamedTuple):
    """What a node's directory holds of it; the default is what an empty one does.

    `attempt` is the number of the node's own newest attempt. `promise` is the proposal of another that it stands by.
    With a `cluster_id` it belongs to a cluster, for ever; `voters` are those that the cluster was formed with, none
    where the node came later and learns them from the log. `replaces`: another directory of this node was a voter when
    it came, and this one is to be one in its place.
    """

    attempt: int = 0
    promise: ClusterProposal | None = None
    cluster_id: UUID | None = None
    voters: Voters = NO_VOTERS
    replaces: bool = False


class FormationHello(NamedTuple):
    """Who somebody is, and how far: the number of its own attempt, the attempt it has promised, its cluster."""

    sender: ReplicaId
    seeds: tuple[str, ...]
    attempt: int
    promised: FormationAttempt | None = None
    cluster_id: UUID | None = None


class ProposeCluster(NamedTuple):
    """Promise this. The sender is the proposer."""

    proposal: ClusterProposal


Message = FormationHello | ProposeCluster


class PersistFormation(NamedTuple):
    """Write this and sync it, before anything that follows is done."""

    kept: FormationDiskState


class SendFormationMessage(NamedTuple):
    """Send a message to whoever is at an address, as a request."""

    address: str
    message: Message


class FormationReply(NamedTuple):
    """Answer the request that was called so."""

    request: object
    hello: FormationHello


class Belongs(NamedTuple):
    """The node is of this cluster from here on. Without voters it learns."""

    cluster_id: UUID
    voters: Voters


Effect = PersistFormation | SendFormationMessage | FormationReply | Belongs
