"""Messages between replicas of the quorum, after KIP-595's requests. Pure values.

Every message names its sender and the sender's epoch. They may be lost, delayed, duplicated and reordered.
"""

from typing import NamedTuple

from duramen.raft.epochs import EpochEnd
from duramen.raft.voter_changes import Change
from duramen.raft.voters import ReplicaId, Voters

__all__ = [
    "BeginEpoch",
    "ChangeVoters",
    "EndEpoch",
    "EntryBatch",
    "Fetch",
    "FetchAnswer",
    "FetchSnapshot",
    "Message",
    "SnapshotAnswer",
    "Told",
    "Vote",
    "VoteAnswer",
]


class EntryBatch(NamedTuple):
    """Entries next to each other: so many from the offset `first` on, ordered by the leader of `epoch`.

    `payload` is nobody's business here. A batch that changes the voters has one entry, and the set that it makes.
    """

    epoch: int
    first: int
    entries: int = 1
    payload: object = None
    voters: Voters | None = None


class Vote(NamedTuple):
    """Would you, or with `pre` false do you, give `voter`'s vote to the sender, whose log ends at `end`?

    With `pre` the epoch is the present one, otherwise the sender's new one.
    """

    sender: ReplicaId
    epoch: int
    voter: ReplicaId
    end: EpochEnd
    pre: bool


class VoteAnswer(NamedTuple):
    """What the sender says to the Vote of a candidate, and the leader that it knows of in its epoch."""

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
    """The sender leads this epoch no more; of the `successors` the first should stand at once."""

    sender: ReplicaId
    epoch: int
    successors: tuple[ReplicaId, ...]


class Told(NamedTuple):
    """The answer to what does not suit the sender's epoch or role: the leader of its epoch, if it knows one."""

    sender: ReplicaId
    epoch: int
    leader: ReplicaId | None


class Fetch(NamedTuple):
    """The sender's log ends at `end`: what follows?

    What acknowledges is `synced_offset`: below it all is on the sender's disk. `high_watermark` is the one that the
    sender knows (KIP-1166), `number` tells its fetches apart.
    """

    sender: ReplicaId
    epoch: int
    end: EpochEnd
    synced_offset: int
    high_watermark: int
    number: int


class FetchAnswer(NamedTuple):
    """The leader's answer to `asked`: the batches from there on, or what stands in their way.

    `diverging`: the histories part, and this is the end of the leader's part; `snapshot`: the sender's end lies before
    the snapshot with which the leader's log begins.
    """

    sender: ReplicaId
    epoch: int
    asked: Fetch
    high_watermark: int
    diverging: EpochEnd | None = None
    snapshot: EpochEnd | None = None
    batches: tuple[EntryBatch, ...] = ()


class FetchSnapshot(NamedTuple):
    """The snapshot that ends there is wanted (KIP-630)."""

    sender: ReplicaId
    epoch: int
    snapshot: EpochEnd


class SnapshotAnswer(NamedTuple):
    """The snapshot, whole, and the voters that it holds."""

    sender: ReplicaId
    epoch: int
    snapshot: EpochEnd
    voters: Voters
    payload: object = None


class ChangeVoters(NamedTuple):
    """The sender wants the leader to change the voters; what came of it stands in the log, or not."""

    sender: ReplicaId
    epoch: int
    change: Change


Message = (
    Vote
    | VoteAnswer
    | BeginEpoch
    | EndEpoch
    | Told
    | Fetch
    | FetchAnswer
    | FetchSnapshot
    | SnapshotAnswer
    | ChangeVoters
)
