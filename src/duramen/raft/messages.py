"""Messages between replicas of the quorum, after KIP-595's requests. Pure values.

Every message names its sender and the sender's epoch. Messages may be lost, delayed, duplicated and reordered.
"""

from typing import NamedTuple

from duramen.raft.epochs import EpochEnd
from duramen.raft.voter_changes import Change
from duramen.raft.voters import ReplicaId, Voters

__all__ = [
    "BeginEpoch",
    "ChangeVoters",
    "CurrentLeader",
    "EndEpoch",
    "EntryBatch",
    "Fetch",
    "FetchAnswer",
    "FetchSnapshot",
    "Message",
    "SnapshotAnswer",
    "Vote",
    "VoteAnswer",
]


class EntryBatch(NamedTuple):
    """Consecutive entries: their number `entries` from the offset `first` on, from the leader of `epoch`.

    The machine does not read `payload`. A batch that changes the voters has one entry and the new set of voters.
    """

    epoch: int
    first: int
    entries: int = 1
    payload: object = None
    voters: Voters | None = None


class Vote(NamedTuple):
    """Request of the vote of `voter`, or with `pre` of its pre-vote; the sender's log ends at `end`.

    With `pre` the epoch is the present one, otherwise the sender's new one.
    """

    sender: ReplicaId
    epoch: int
    voter: ReplicaId
    end: EpochEnd
    pre: bool


class VoteAnswer(NamedTuple):
    """The sender's response to the Vote of a candidate, and the leader that it knows in its epoch."""

    sender: ReplicaId
    epoch: int
    candidate: ReplicaId
    leader: ReplicaId | None
    granted: bool
    pre: bool


class BeginEpoch(NamedTuple):
    """The sender leads this epoch: fetch from it."""

    sender: ReplicaId
    epoch: int


class EndEpoch(NamedTuple):
    """The sender leads this epoch no more; the first of the `successors` should start an election at once."""

    sender: ReplicaId
    epoch: int
    successors: tuple[ReplicaId, ...]


class CurrentLeader(NamedTuple):
    """The response to a message that does not fit the sender's epoch or role: its epoch's leader, if it knows one."""

    sender: ReplicaId
    epoch: int
    leader: ReplicaId | None


class Fetch(NamedTuple):
    """Request of the entries after `end`, the end of the sender's log.

    The entries below `synced_offset` are on the sender's disk: this acknowledges them. `high_watermark` is the sender's
    (KIP-1166). `number` identifies the fetch among the sender's fetches.
    """

    sender: ReplicaId
    epoch: int
    end: EpochEnd
    synced_offset: int
    high_watermark: int
    number: int


class FetchAnswer(NamedTuple):
    """The leader's response to `asked`: the batches from its end on, or the reason why there are none.

    `diverging`: the histories diverge, and this is the end of the leader's part. `snapshot`: the sender's end lies
    before the snapshot at the start of the leader's log.
    """

    sender: ReplicaId
    epoch: int
    asked: Fetch
    high_watermark: int
    diverging: EpochEnd | None = None
    snapshot: EpochEnd | None = None
    batches: tuple[EntryBatch, ...] = ()


class FetchSnapshot(NamedTuple):
    """Request of the snapshot with this end (KIP-630)."""

    sender: ReplicaId
    epoch: int
    snapshot: EpochEnd


class SnapshotAnswer(NamedTuple):
    """The complete snapshot and its voters."""

    sender: ReplicaId
    epoch: int
    snapshot: EpochEnd
    voters: Voters
    payload: object = None


class ChangeVoters(NamedTuple):
    """Request to the leader to change the voters; the log shows whether it did."""

    sender: ReplicaId
    epoch: int
    change: Change


Message = (
    Vote
    | VoteAnswer
    | BeginEpoch
    | EndEpoch
    | CurrentLeader
    | Fetch
    | FetchAnswer
    | FetchSnapshot
    | SnapshotAnswer
    | ChangeVoters
)
