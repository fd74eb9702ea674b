"""What nodes that form a cluster say to each other, what they keep, and what they want done. Pure values.

Both messages are requests, and the answer to either is a hello. They may be lost, come late, twice and in any order.
"""

from typing import NamedTuple
from uuid import UUID, uuid5

from duramen.raft.voters import NO_VOTERS, ReplicaId, Voters

__all__ = [
    "Attempt",
    "Belongs",
    "Effect",
    "Hello",
    "Kept",
    "Message",
    "Persist",
    "Proposal",
    "Propose",
    "Reply",
    "Send",
]


class Attempt(NamedTuple):
    """One try of a node's directory to form a cluster. Each has at most one proposal, and a cluster id of its own."""

    proposer: ReplicaId
    number: int

    @property
    def cluster_id(self) -> UUID:
        """The id of the cluster that comes of it: a directory's id is random, and never counts twice."""
        return uuid5(UUID(self.proposer.directory_id), str(self.number))


class Proposal(NamedTuple):
    """A cluster that may be: its first voters, who are all that the seeds named."""

    attempt: Attempt
    seeds: tuple[str, ...]
    voters: Voters


class Kept(NamedTuple):
    """What a node's directory holds of it; the default is what an empty one does.

    `attempt` is the number of the node's own newest attempt. `promise` is the proposal of another that it stands by.
    With a `cluster_id` it belongs to a cluster, for ever; `voters` are those that the cluster was formed with, none
    where the node came later and learns them from the log. `replaces`: another directory of this node was a voter when
    it came, and this one is to be one in its place.
    """

    attempt: int = 0
    promise: Proposal | None = None
    cluster_id: UUID | None = None
    voters: Voters = NO_VOTERS
    replaces: bool = False


class Hello(NamedTuple):
    """Who somebody is, and how far: the number of its own attempt, the attempt it has promised, its cluster."""

    sender: ReplicaId
    seeds: tuple[str, ...]
    attempt: int
    promised: Attempt | None = None
    cluster_id: UUID | None = None


class Propose(NamedTuple):
    """Promise this. The sender is the proposer."""

    proposal: Proposal


Message = Hello | Propose


class Persist(NamedTuple):
    """Write this and sync it, before anything that follows is done."""

    kept: Kept


class Send(NamedTuple):
    """Send a message to whoever is at an address, as a request."""

    address: str
    message: Message


class Reply(NamedTuple):
    """Answer the request that was called so."""

    request: object
    hello: Hello


class Belongs(NamedTuple):
    """The node is of this cluster from here on. Without voters it learns."""

    cluster_id: UUID
    voters: Voters


Effect = Persist | Send | Reply | Belongs
