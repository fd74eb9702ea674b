"""The effects of a replica. The caller executes them in order, and waits at a Persist until it is on disk.

No other effect waits for the disk: the caller writes entries, and calls `Machine.synced` when they are synced. A fetch
carries the synced offset. Cut and Install are like appends: until a sync covers them, the disk may still have the
earlier state.
"""

from typing import NamedTuple

from duramen.raft.ballots import Ballot
from duramen.raft.epochs import EpochEnd
from duramen.raft.messages import EntryBatch, FetchAnswer, Message, SnapshotAnswer
from duramen.raft.roles import RaftRole
from duramen.raft.voters import ReplicaId, Voters

__all__ = ["Append", "Became", "Commit", "Cut", "Effect", "Install", "Persist", "Send", "Serve", "ServeSnapshot"]


class Persist(NamedTuple):
    """Write and sync the ballot before the effects that follow."""

    ballot: Ballot


class Append(NamedTuple):
    """Write a batch to the end of the log, at its offset `first`."""

    batch: EntryBatch


class Cut(NamedTuple):
    """Truncate the log at `end_offset`: none of the removed entries was committed."""

    end_offset: int


class Install(NamedTuple):
    """Replace the log with this snapshot; `voters` are the voters in the snapshot."""

    snapshot: EpochEnd
    voters: Voters
    payload: object


class Send(NamedTuple):
    """Send a message to a node."""

    node_id: int
    message: Message


class Serve(NamedTuple):
    """Send the response with batches of the log from `answer.asked.end.offset` on, as many as fit."""

    node_id: int
    answer: FetchAnswer


class ServeSnapshot(NamedTuple):
    """Send the response with the snapshot that it names."""

    node_id: int
    answer: SnapshotAnswer


class Commit(NamedTuple):
    """The entries below this offset are committed and can be applied."""

    high_watermark: int


class Became(NamedTuple):
    """The role of the replica in its epoch, and the leader that it knows. A leader accepts proposals from now on."""

    role: RaftRole
    epoch: int
    leader: ReplicaId | None


Effect = Persist | Append | Cut | Install | Send | Serve | ServeSnapshot | Commit | Became
