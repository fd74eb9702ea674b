"""Messages of cluster formation as bytes."""

from uuid import UUID

from duramen.base.errors import RequestInvalid
from duramen.base.ports import Buffer
from duramen.codec.cluster import formation as wire
from duramen.raft.forming.values import ClusterProposal, FormationAttempt, FormationHello, Message, ProposeCluster
from duramen.raft.voters import ReplicaId, Voter, Voters

__all__ = ["from_bytes", "to_bytes"]


def to_bytes(message: Message) -> bytes:
    """The message in bytes."""
    match message:
        case FormationHello(sender, seeds, attempt, promised, cluster_id):
            promise = None if promised is None else _wire_attempt(promised)
            return wire.encode(wire.HelloFrame(_wire_replica(sender), seeds, attempt, promise, cluster_id))
        case ProposeCluster(ClusterProposal(attempt, seeds, voters)):
            each = tuple((*_wire_replica(voter.id), voter.endpoint) for voter in voters)
            return wire.encode(wire.ProposeFrame(_wire_attempt(attempt), seeds, each))


def from_bytes(body: Buffer, sender: tuple[int, UUID]) -> Message:
    """The message in these bytes. Raises RequestInvalid, also if it is not about its `sender`."""
    message = wire.decode(body)
    said_by = message.sender if isinstance(message, wire.HelloFrame) else message.attempt[:2]
    if said_by != sender:
        raise RequestInvalid(
            f"{said_by[0]}/{said_by[1]} is not who sent this message: that was {sender[0]}/{sender[1]}"
        )
    if isinstance(message, wire.HelloFrame):
        promised = None if message.promised is None else _attempt(message.promised)
        return FormationHello(_replica(message.sender), message.seeds, message.attempt, promised, message.cluster_id)
    if len({voter[0] for voter in message.voters}) != len(message.voters):
        raise RequestInvalid("a set of voters has a node twice")
    voters = Voters(Voter(_replica(voter[:2]), voter[2]) for voter in message.voters)
    return ProposeCluster(ClusterProposal(_attempt(message.attempt), message.seeds, voters))


def _wire_replica(replica: ReplicaId) -> wire.ReplicaId:
    return replica.node_id, UUID(replica.directory_id)


def _wire_attempt(attempt: FormationAttempt) -> wire.Attempt:
    return (*_wire_replica(attempt.proposer), attempt.number)


def _replica(replica: wire.ReplicaId) -> ReplicaId:
    return ReplicaId(replica[0], str(replica[1]))


def _attempt(attempt: wire.Attempt) -> FormationAttempt:
    return FormationAttempt(_replica(attempt[:2]), attempt[2])
