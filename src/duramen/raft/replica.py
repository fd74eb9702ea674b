"""The state of a quorum replica in any role, and its pending effects. Pure."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from duramen.raft.ballots import Ballot
from duramen.raft.effects import Append, Became, Commit, Cut, Effect, Install, Persist, Send
from duramen.raft.epochs import NOTHING, EpochEnd, EpochTable
from duramen.raft.messages import CurrentLeader, EntryBatch, Fetch, Message, SnapshotAnswer
from duramen.raft.roles import RaftRole
from duramen.raft.timeouts import RaftTimeouts
from duramen.raft.voters import NO_VOTERS, ReplicaId, Voter, VoterHistory, Voters

__all__ = ["Chance", "RaftCore", "RaftDiskState"]

Chance = Callable[[int], int]
"""An injected source of randomness: a number from 0 to the given one, exclusive."""


class RaftDiskState(NamedTuple):
    """The disk state of a replica: its ballot, its snapshot's end and voters, the batches after it.

    `damaged`: entries that were synced may be lost by damage.
    """

    ballot: Ballot = Ballot()
    snapshot: EpochEnd = NOTHING
    voters: Voters = NO_VOTERS
    batches: Iterable[EntryBatch] = ()
    damaged: bool = False


class RaftCore:
    """The state of a replica and its pending effects. `seeds` are the nodes to ask if no voter is known."""

    def __init__(
        self,
        me: ReplicaId,
        kept: RaftDiskState,
        *,
        now_ms: int,
        chance: Chance,
        timeouts: RaftTimeouts,
        seeds: tuple[int, ...],
    ) -> None:
        self.me = me
        self.now_ms = now_ms
        self.chance = chance
        self.timeouts = timeouts
        self.seeds = seeds
        self.log = EpochTable(kept.snapshot)
        self.voters = VoterHistory(kept.voters)
        for batch in kept.batches:
            self._note(batch)
        self.synced_offset = self.log.end.offset
        self.high_watermark = kept.snapshot.offset
        # An epoch is on disk before its entries. If the disk says otherwise, the entries count.
        self.ballot = kept.ballot if kept.ballot.epoch >= self.log.end.epoch else Ballot(self.log.end.epoch)
        self.role = RaftRole.UNATTACHED
        self.leader: ReplicaId | None = None
        self.confirmed = False
        """Whether the leader is this replica, or has responded to it in this epoch and is still connected."""
        self.gone: set[int] = set()
        """Nodes whose connections closed and that have sent nothing since."""
        self.muted = False
        """Whether the disk stores nothing any more: the replica follows in memory, and neither votes nor leads."""
        self.damaged = kept.damaged and self.voters.latest.ids != (me,)
        """Whether the replica may lack entries that it has acknowledged.

        Until a leader has sent them again, it neither votes nor leads, and acknowledges nothing.
        """
        self.joins: Voter | None = None
        """The voter that the replica is to become."""
        self.doubts = 0
        """The number of times that the replica gave up this epoch's leader since the leader's last response."""
        self.effects: list[Effect] = []
        self.fetches = 0
        """The number of fetches sent; each fetch has its number."""
        self._became = Became(self.role, self.epoch, self.leader)

    @property
    def epoch(self) -> int:
        """The newest epoch that the replica knows."""
        return self.ballot.epoch

    @property
    def votes(self) -> bool:
        """Whether the replica can be a candidate and lead: it is a voter, or was one before an uncommitted change.

        A replica that only its own log removes may have entries that the other voters need, and they may have no other
        leader (Raft dissertation, 4.2.2).
        """
        if self.muted or self.damaged:
            return False
        if self.me in self.voters.latest:
            return True
        return self.voters.latest_offset >= self.high_watermark and self.me in self.voters.previous

    @property
    def known_leader(self) -> ReplicaId | None:
        """The leader to tell other replicas: an unconfirmed leader would be passed round for ever after its failure."""
        return self.leader if self.confirmed else None

    @property
    def may_win(self) -> bool:
        """Whether the voters that are not gone are a majority."""
        voters = self.voters.latest
        return voters.majority([voter for voter in voters.ids if voter.node_id not in self.gone])

    def next_fetch(self) -> Fetch:
        """The next fetch for the leader."""
        self.fetches += 1
        synced_offset = 0 if self.damaged else self.synced_offset
        return Fetch(self.me, self.epoch, self.log.end, synced_offset, self.high_watermark, self.fetches)

    # -- effects ------------------------------------------------------------------------------------

    def send(self, node_id: int, message: Message) -> None:
        """Send a message."""
        self.effects.append(Send(node_id, message))

    def tell(self, replica: ReplicaId) -> None:
        """Send the epoch and its leader."""
        self.send(replica.node_id, CurrentLeader(self.me, self.epoch, self.known_leader))

    def promise(self, ballot: Ballot) -> None:
        """Make this the ballot, and sync it before other effects."""
        if ballot.epoch > self.ballot.epoch:
            self.doubts = 0
        self.ballot = ballot
        # No other node has seen the last ballot yet if only role changes followed it: one sync covers both.
        at = next((at for at in range(len(self.effects), 0, -1) if not isinstance(self.effects[at - 1], Became)), 0)
        if at and isinstance(self.effects[at - 1], Persist):
            self.effects[at - 1] = Persist(ballot)
        else:
            self.effects.append(Persist(ballot))

    def became(self) -> None:
        """Report the role, unless it has been reported."""
        became = Became(self.role, self.epoch, self.leader)
        if became != self._became:
            self._became = became
            self.effects.append(became)

    def append(self, batch: EntryBatch) -> None:
        """Write a batch to the end of the log."""
        self._note(batch)
        self.effects.append(Append(batch))

    def cut(self, end_offset: int) -> None:
        """Truncate the log at `end_offset`."""
        self.log.cut(end_offset)
        self.voters.cut(end_offset)
        self.synced_offset = min(self.synced_offset, end_offset)
        self.effects.append(Cut(end_offset))

    def install(self, answer: SnapshotAnswer) -> None:
        """Restart the log with a snapshot."""
        # Only the committed and synced entries of the old log count as on disk: the snapshot includes them.
        self.synced_offset = min(self.synced_offset, self.high_watermark)
        self.log.restart(answer.snapshot)
        self.voters.restart(answer.voters)
        self.effects.append(Install(answer.snapshot, answer.voters, answer.payload))
        self.commit(answer.snapshot.offset)

    def commit(self, high_watermark: int) -> bool:
        """Raise the high watermark, if this one is higher."""
        if high_watermark <= self.high_watermark:
            return False
        self.high_watermark = high_watermark
        self.effects.append(Commit(high_watermark))
        return True

    def _note(self, batch: EntryBatch) -> None:
        if batch.voters is not None:
            self.voters.append(batch.first, batch.voters)
        self.log.append(batch.epoch, batch.entries)
