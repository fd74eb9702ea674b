"""The state of a quorum replica in any role, and its pending effects. Pure."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from duramen.raft.ballots import Ballot
from duramen.raft.effects import Append, Became, Commit, Cut, Effect, Install, Persist, Send
from duramen.raft.epochs import NOTHING, EpochEnd, EpochTable
from duramen.raft.messages import EntryBatch, Fetch, Message, SnapshotAnswer, Told
from duramen.raft.roles import RaftRole
from duramen.raft.timeouts import RaftTimeouts
from duramen.raft.voters import NO_VOTERS, ReplicaId, Voter, VoterHistory, Voters

__all__ = ["Chance", "RaftCore", "RaftDiskState"]

Chance = Callable[[int], int]
"""Randomness that is handed in: a number from 0 to the given one, itself not included."""


class RaftDiskState(NamedTuple):
    """What a replica finds on its disk: its ballot, its snapshot's end and voters, the batches behind it.

    `damaged`: damage may have cost entries that it had synced.
    """

    ballot: Ballot = Ballot()
    snapshot: EpochEnd = NOTHING
    voters: Voters = NO_VOTERS
    batches: Iterable[EntryBatch] = ()
    damaged: bool = False


class RaftCore:
    """What is known, and what is to be done about it. `seeds` are nodes to ask where no voter is known."""

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
        # An epoch is on disk before its entries are; where a disk says otherwise the entries are believed.
        self.ballot = kept.ballot if kept.ballot.epoch >= self.log.end.epoch else Ballot(self.log.end.epoch)
        self.role = RaftRole.UNATTACHED
        self.leader: ReplicaId | None = None
        self.confirmed = False
        """Whether the leader is this one, or has answered it in this epoch and was not lost since."""
        self.gone: set[int] = set()
        """Nodes whose connections closed, and of which nothing was heard since."""
        self.muted = False
        """Whether its disk keeps nothing any more: it follows in memory, and neither votes nor stands."""
        self.damaged = kept.damaged and self.voters.latest.ids != (me,)
        """Whether it may lack entries that it has acknowledged: until a leader has given them to it again it neither
        votes nor stands, nor says that it has anything."""
        self.joins: Voter | None = None
        """The voter that it wants to become."""
        self.doubts = 0
        """How often it gave the leader of this epoch up, since that answered."""
        self.effects: list[Effect] = []
        self.fetches = 0
        """How many it has sent; each has its number."""
        self._became = Became(self.role, self.epoch, self.leader)

    @property
    def epoch(self) -> int:
        """The newest epoch that it knows."""
        return self.ballot.epoch

    @property
    def votes(self) -> bool:
        """Whether it may stand and lead: it is a voter, or was before a change that it does not know to be committed.

        Who is removed by its own log alone may have what the others need, and nobody else to lead them (Raft
        dissertation, 4.2.2).
        """
        if self.muted or self.damaged:
            return False
        if self.me in self.voters.latest:
            return True
        return self.voters.latest_offset >= self.high_watermark and self.me in self.voters.previous

    @property
    def known_leader(self) -> ReplicaId | None:
        """The leader, as others may be told: what is only hearsay would go round for ever once that leader is lost."""
        return self.leader if self.confirmed else None

    @property
    def may_win(self) -> bool:
        """Whether voters that are not gone are a majority."""
        voters = self.voters.latest
        return voters.majority([voter for voter in voters.ids if voter.node_id not in self.gone])

    def next_fetch(self) -> Fetch:
        """What to ask a leader for."""
        self.fetches += 1
        synced_offset = 0 if self.damaged else self.synced_offset
        return Fetch(self.me, self.epoch, self.log.end, synced_offset, self.high_watermark, self.fetches)

    # -- what is to be done -------------------------------------------------------------------------

    def send(self, node_id: int, message: Message) -> None:
        """Send a message."""
        self.effects.append(Send(node_id, message))

    def tell(self, replica: ReplicaId) -> None:
        """Answer with the epoch and its leader."""
        self.send(replica.node_id, Told(self.me, self.epoch, self.known_leader))

    def promise(self, ballot: Ballot) -> None:
        """Make it the ballot, on disk before anything else."""
        if ballot.epoch > self.ballot.epoch:
            self.doubts = 0
        self.ballot = ballot
        # Nobody has heard of the last one yet where only a role was taken on since: one sync does for both.
        at = next((at for at in range(len(self.effects), 0, -1) if not isinstance(self.effects[at - 1], Became)), 0)
        if at and isinstance(self.effects[at - 1], Persist):
            self.effects[at - 1] = Persist(ballot)
        else:
            self.effects.append(Persist(ballot))

    def became(self) -> None:
        """Say what role it has, unless that is known."""
        became = Became(self.role, self.epoch, self.leader)
        if became != self._became:
            self._became = became
            self.effects.append(became)

    def append(self, batch: EntryBatch) -> None:
        """Write a batch to the end of the log."""
        self._note(batch)
        self.effects.append(Append(batch))

    def cut(self, end_offset: int) -> None:
        """Let go of the log's entries from `end_offset` on."""
        self.log.cut(end_offset)
        self.voters.cut(end_offset)
        self.synced_offset = min(self.synced_offset, end_offset)
        self.effects.append(Cut(end_offset))

    def install(self, answer: SnapshotAnswer) -> None:
        """Begin the log anew with a snapshot."""
        # On disk is what was committed and synced of the log so far: the snapshot holds it, and nothing else of it.
        self.synced_offset = min(self.synced_offset, self.high_watermark)
        self.log.restart(answer.snapshot)
        self.voters.restart(answer.voters)
        self.effects.append(Install(answer.snapshot, answer.voters, answer.payload))
        self.commit(answer.snapshot.offset)

    def commit(self, high_watermark: int) -> bool:
        """Raise the high watermark, if this is higher."""
        if high_watermark <= self.high_watermark:
            return False
        self.high_watermark = high_watermark
        self.effects.append(Commit(high_watermark))
        return True

    def _note(self, batch: EntryBatch) -> None:
        if batch.voters is not None:
            self.voters.append(batch.first, batch.voters)
        self.log.append(batch.epoch, batch.entries)
