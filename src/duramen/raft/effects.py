"""The effects of a replica. The caller executes them in order, and stops at a Persist until that is on disk.

Nothing else waits for the disk: entries are written, and `Machine.synced` is called when they are synced; a fetch
itself carries the synced offset. Cut and Install are like appends: until a sync covers them, the disk may still have
the earlier state.
"""

from typing import NamedTuple

from duramen.raft.ballots import Ballot
from duramen.raft.epochs import EpochEnd
from duramen.raft.messages import EntryBatch, FetchAnswer, Message, SnapshotAnswer
from duramen.raft.roles import RaftRole
from duramen.raft.voters import ReplicaId, Voters

__all__ = ["Append", "Became", "Commit", "Cut", "Effect", "Install", "Persist", "Send", "Serve", "ServeSnapshot"]


class Persist(NamedTuple):
    """Write the ballot and sync it, before anything that follows is done."""

    ballot: Ballot


class Append(NamedTuple):
    """Write a batch to the end of the log, where its `first` is."""

    batch: EntryBatch


class Cut(NamedTuple):
    """Let go of the log's entries from `end_offset` on: none of them was committed."""

    end_offset: int


class Install(NamedTuple):
    """The log is now this snapshot and nothing behind it; `voters` are those that it holds."""

    snapshot: EpochEnd
    voters: Voters
    payload: object


class Send(NamedTuple):
    """Send a message to a node."""

    node_id: int
    message: Message


class Serve(NamedTuple):
    """Send the answer with batches of the log from `answer.asked.end.offset` on, as many as fit."""

    node_id: int
    answer: FetchAnswer


class ServeSnapshot(NamedTuple):
    """Send the answer with the snapshot that it names."""

    node_id: int
    answer: SnapshotAnswer


class Commit(NamedTuple):
    """What is below this offset is committed, and may take effect."""

    high_watermark: int


class Became(NamedTuple):
    """The role of the replica in its epoch, and the leader that it knows; a leader may be proposed to from here on."""

    role: RaftRole
    epoch: int
    leader: ReplicaId | None


Effect = Persist | Append | Cut | Install | Send | Serve | ServeSnapshot | Commit | Became
