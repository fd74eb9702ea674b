"""The quorum's messages in transit: the connection that each takes, and its bytes."""

from typing import Final
from uuid import UUID

from duramen.base.errors import RequestInvalid
from duramen.base.ports import Buffer
from duramen.codec.cluster import quorum as wire
from duramen.codec.cluster.channels import PeerChannel
from duramen.controller.quorum.snapshot_chunks import FetchChunk, SnapshotBytes, Wire
from duramen.raft import messages
from duramen.raft import voter_changes as changes
from duramen.raft.epochs import EpochEnd
from duramen.raft.voters import ReplicaId, Voter, Voters

__all__ = ["channel_of", "from_bytes", "to_bytes"]

_FETCHING: Final = (messages.Fetch, messages.FetchAnswer, FetchChunk, SnapshotBytes)


def channel_of(message: Wire) -> PeerChannel:
    """Votes and epochs never wait behind batches of the log."""
    return PeerChannel.METADATA if isinstance(message, _FETCHING) else PeerChannel.CONTROL


def to_bytes(message: Wire) -> bytes:
    """The message in bytes. Raises TypeError where a payload is not bytes, or where a snapshot is not in chunks."""
    return wire.encode(_to_wire(message))


def from_bytes(body: Buffer, sender: tuple[int, UUID]) -> Wire:
    """The message in these bytes. Raises RequestInvalid, also where not `sender` is named as its sender."""
    message = _from_wire(wire.decode(body))
    named = message.asked.sender if isinstance(message, FetchChunk) else message.sender
    if named != (sender[0], str(sender[1])):
        raise RequestInvalid(f"{named} is not who sent this message: that was {sender[0]}/{sender[1]}")
    return message


# -- to the wire --------------------------------------------------------------------------------------


def _to_wire(message: Wire) -> wire.Message:
    match message:
        case messages.Vote():
            return wire.VoteFrame(*message)
        case messages.VoteAnswer():
            return wire.VoteAnswerFrame(*message)
        case messages.BeginEpoch():
            return wire.BeginEpochFrame(*message)
        case messages.EndEpoch():
            return wire.EndEpochFrame(*message)
        case messages.CurrentLeader():
            return wire.CurrentLeaderFrame(*message)
        case messages.Fetch():
            return wire.FetchFrame(*message)
        case messages.FetchAnswer(sender, epoch, asked, high_watermark, diverging, snapshot, batches):
            return wire.FetchAnswerFrame(
                sender,
                epoch,
                wire.FetchFrame(*asked),
                high_watermark,
                diverging,
                snapshot,
                tuple(map(_wire_batch, batches)),
            )
        case FetchChunk(asked, position):
            return wire.FetchSnapshotFrame(*asked, position)
        case SnapshotBytes():
            return wire.SnapshotChunk(*message)
        case messages.ChangeVoters(sender, epoch, change):
            return wire.ChangeVotersFrame(sender, epoch, _wire_change(change))
        case messages.FetchSnapshot() | messages.SnapshotAnswer():
            raise TypeError("a snapshot travels in chunks, not whole")


def _wire_batch(batch: messages.EntryBatch) -> wire.EntriesFrame:
    voters = None if batch.voters is None else _wire_voters(batch.voters)
    return wire.EntriesFrame(batch.epoch, batch.first, batch.entries, _payload(batch.payload), voters)


def _payload(payload: object) -> bytes | None:
    if payload is None or isinstance(payload, bytes):
        return payload
    raise TypeError(f"a payload travels as bytes, not as {type(payload).__name__}")


def _wire_voter(voter: Voter) -> wire.Voter:
    return (*voter.id, voter.endpoint)


def _wire_voters(voters: Voters) -> tuple[wire.Voter, ...]:
    return tuple(map(_wire_voter, voters))


def _wire_change(change: changes.Change) -> wire.AddVoterFrame | wire.RemoveVoterFrame | wire.UpdateVoterFrame:
    match change:
        case changes.VoterAddition(voter):
            return wire.AddVoterFrame(_wire_voter(voter))
        case changes.VoterRemoval(replica):
            return wire.RemoveVoterFrame(replica)
        case changes.VoterUpdate(voter):
            return wire.UpdateVoterFrame(_wire_voter(voter))


# -- from the wire ------------------------------------------------------------------------------------


def _from_wire(message: wire.Message) -> Wire:
    sender, epoch = ReplicaId(*message.sender), message.epoch
    match message:
        case wire.VoteFrame():
            return messages.Vote(sender, epoch, ReplicaId(*message.voter), EpochEnd(*message.end), message.pre)
        case wire.VoteAnswerFrame():
            candidate, leader = ReplicaId(*message.candidate), _replica(message.leader)
            return messages.VoteAnswer(sender, epoch, candidate, leader, message.granted, message.pre)
        case wire.BeginEpochFrame():
            return messages.BeginEpoch(sender, epoch)
        case wire.EndEpochFrame():
            return messages.EndEpoch(sender, epoch, tuple(ReplicaId(*one) for one in message.successors))
        case wire.CurrentLeaderFrame():
            return messages.CurrentLeader(sender, epoch, _replica(message.leader))
        case wire.FetchFrame():
            return _fetch(message)
        case wire.FetchAnswerFrame():
            batches = tuple(map(_batch, message.batches))
            diverging, snapshot = _end(message.diverging), _end(message.snapshot)
            fetch = _fetch(message.asked)
            return messages.FetchAnswer(sender, epoch, fetch, message.high_watermark, diverging, snapshot, batches)
        case wire.FetchSnapshotFrame():
            asked = messages.FetchSnapshot(sender, epoch, EpochEnd(*message.snapshot))
            return FetchChunk(asked, message.position)
        case wire.SnapshotChunk():
            end = EpochEnd(*message.snapshot)
            return SnapshotBytes(sender, epoch, end, message.position, message.size_bytes, message.data)
        case wire.ChangeVotersFrame():
            return messages.ChangeVoters(sender, epoch, _change(message.change))


def _replica(replica: wire.ReplicaId | None) -> ReplicaId | None:
    return None if replica is None else ReplicaId(*replica)


def _end(end: tuple[int, int] | None) -> EpochEnd | None:
    return None if end is None else EpochEnd(*end)


def _fetch(fetch: wire.FetchFrame) -> messages.Fetch:
    return messages.Fetch(
        ReplicaId(*fetch.sender),
        fetch.epoch,
        EpochEnd(*fetch.end),
        fetch.synced_offset,
        fetch.high_watermark,
        fetch.number,
    )


def _batch(batch: wire.EntriesFrame) -> messages.EntryBatch:
    voters = None if batch.voters is None else _voters(batch.voters)
    return messages.EntryBatch(batch.epoch, batch.first, batch.entries, batch.payload, voters)


def _voter(voter: wire.Voter) -> Voter:
    return Voter(ReplicaId(*voter[:2]), voter[2])


def _voters(voters: tuple[wire.Voter, ...]) -> Voters:
    """Raises RequestInvalid where a node is there twice, which no set of voters may have."""
    if len({voter[0] for voter in voters}) != len(voters):
        raise RequestInvalid("a set of voters has a node twice")
    return Voters(map(_voter, voters))


def _change(change: wire.AddVoterFrame | wire.RemoveVoterFrame | wire.UpdateVoterFrame) -> changes.Change:
    match change:
        case wire.AddVoterFrame(voter):
            return changes.VoterAddition(_voter(voter))
        case wire.RemoveVoterFrame(replica):
            return changes.VoterRemoval(ReplicaId(*replica))
        case wire.UpdateVoterFrame(voter):
            return changes.VoterUpdate(_voter(voter))
