"""A replica of the quorum: takes messages, time and synced offsets, and returns effects. Pure.

Raft as KIP-595 lays it over Fetch. Each role has its own module; the table in `roles` has the transitions; this module
dispatches input to the current role.
"""

from typing import Final

from duramen.raft.ballots import Ballot
from duramen.raft.effects import Effect
from duramen.raft.elections import CandidateRole, grants
from duramen.raft.epochs import EpochEnd
from duramen.raft.follower import FollowerRole
from duramen.raft.leader import LeaderRole
from duramen.raft.messages import (
    BeginEpoch,
    ChangeVoters,
    EndEpoch,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    Message,
    SnapshotAnswer,
    Told,
    Vote,
    VoteAnswer,
)
from duramen.raft.replica import Chance, RaftCore, RaftDiskState
from duramen.raft.roles import TRANSITIONS, Cause, RaftRole
from duramen.raft.timeouts import TIMEOUTS, RaftTimeouts
from duramen.raft.unattached import AT_ONCE, UnattachedRole
from duramen.raft.voter_changes import Change, VoterChangeRefusal
from duramen.raft.voters import ReplicaId, Voter, Voters

__all__ = ["RaftMachine"]

_REQUESTS: Final = (BeginEpoch, EndEpoch, Fetch, FetchSnapshot, ChangeVoters)


class RaftMachine:
    """The replica `me`, as its disk knows it. Whatever is called, `take` has what is to be done then.

    `seeds` are the nodes that a replica without voters asks; `joins` is the voter that it wants to become.
    """

    def __init__(
        self,
        me: ReplicaId,
        kept: RaftDiskState,
        *,
        now_ms: int,
        chance: Chance,
        timeouts: RaftTimeouts = TIMEOUTS,
        seeds: tuple[int, ...] = (),
        joins: Voter | None = None,
    ) -> None:
        self._replica = RaftCore(me, kept, now_ms=now_ms, chance=chance, timeouts=timeouts, seeds=seeds)
        self._replica.joins = joins
        alone = self._replica.voters.latest.ids == (me,)
        self._part: UnattachedRole | CandidateRole | FollowerRole | LeaderRole = UnattachedRole(
            self._replica, AT_ONCE if alone else None
        )
        self._part.open()
        self.tick(now_ms)

    # -- what is known ------------------------------------------------------------------------------

    @property
    def core(self) -> RaftCore:
        """What it knows whatever its role is."""
        return self._replica

    @property
    def part(self) -> UnattachedRole | CandidateRole | FollowerRole | LeaderRole:
        """What it does in its role."""
        return self._part

    @property
    def me(self) -> ReplicaId:
        """Who it is."""
        return self._replica.me

    @property
    def role(self) -> RaftRole:
        """Its role."""
        return self._replica.role

    @property
    def epoch(self) -> int:
        """The newest epoch that it knows."""
        return self._replica.epoch

    @property
    def leader(self) -> ReplicaId | None:
        """The leader of the epoch, if it knows one."""
        return self._replica.leader

    @property
    def damaged(self) -> bool:
        """Whether it may lack entries that it has acknowledged; see `RaftDiskState`."""
        return self._replica.damaged

    @property
    def voters(self) -> Voters:
        """The voters, committed or not."""
        return self._replica.voters.latest

    @property
    def end(self) -> EpochEnd:
        """The end of its log, written or to be written."""
        return self._replica.log.end

    @property
    def start(self) -> EpochEnd:
        """The end of the snapshot with which its log begins."""
        return self._replica.log.start

    @property
    def high_watermark(self) -> int:
        """What is below this offset is committed."""
        return self._replica.high_watermark

    @property
    def synced_offset(self) -> int:
        """What is below this offset of its log is on its disk."""
        return self._replica.synced_offset

    @property
    def synced_end(self) -> EpochEnd:
        """The end of what of its log is on its disk."""
        synced_offset = self._replica.synced_offset
        return EpochEnd(self._replica.log.epoch_below(synced_offset), synced_offset)

    @property
    def deadline_ms(self) -> int:
        """When `tick` has something to do, unless something else happens first."""
        return self._part.deadline_ms

    def epoch_below(self, offset: int) -> int:
        """The epoch of the entry before `offset`, of the snapshot's last one where that is not behind its end."""
        return self._replica.log.epoch_below(offset)

    def take(self) -> list[Effect]:
        """What is to be done since the last call, in this order; see `effects`."""
        effects, self._replica.effects = self._replica.effects, []
        return effects

    # -- what happens -------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """It is `now_ms`, by a clock of this replica's own that never goes back."""
        self._replica.now_ms = max(now_ms, self._replica.now_ms)
        self._move(self._part.tick())

    def synced(self, end: EpochEnd) -> None:
        """What is up to `end` is on disk; nothing is said where that is no part of the log any more."""
        replica = self._replica
        if end.offset > replica.synced_offset and replica.log.holds(end):
            replica.synced_offset = end.offset
            if isinstance(self._part, LeaderRole):
                self._move(self._part.synced())
            elif isinstance(self._part, FollowerRole):
                self._part.synced()

    def connected(self, node_id: int) -> None:
        """There is a connection to this node, or one more."""
        self._replica.gone.discard(node_id)
        part = self._part
        if isinstance(part, LeaderRole | CandidateRole) or (
            isinstance(part, FollowerRole) and self._is_leader(node_id)
        ):
            part.connected()

    def disconnected(self, node_id: int) -> None:
        """The last connection to this node closed: it may have ended. The first sign of it, and no proof."""
        self._replica.gone.add(node_id)
        if isinstance(self._part, CandidateRole):
            self._move(self._part.outcome)
        elif isinstance(self._part, UnattachedRole):
            self._part.disconnected(node_id)
        elif isinstance(self._part, FollowerRole) and self._is_leader(node_id):
            self._part.disconnected()

    def heard(self, leader: ReplicaId, epoch: int) -> None:
        """A piece of a snapshot came from the leader of this epoch."""
        if isinstance(self._part, FollowerRole) and leader == self.leader and epoch == self.epoch:
            self._part.heard()

    def compacted(self, offset: int) -> None:
        """A snapshot holds what is below `offset`, which is committed: the log begins there."""
        replica = self._replica
        if replica.log.start.offset < offset <= min(replica.high_watermark, replica.synced_offset):
            replica.voters.start_at(offset)
            replica.log.start_at(offset)

    def propose(self, payload: object, count: int = 1) -> EpochEnd | VoterChangeRefusal:
        """Order a batch of entries; where they end, once it is committed if it ever is."""
        return (
            self._part.propose(payload, count) if isinstance(self._part, LeaderRole) else VoterChangeRefusal.NOT_LEADER
        )

    def change(self, change: Change) -> EpochEnd | VoterChangeRefusal:
        """Order a change of the voters; where its entry ends."""
        return self._part.change(change) if isinstance(self._part, LeaderRole) else VoterChangeRefusal.NOT_LEADER

    def join(self, voter: Voter) -> None:
        """It is to become this voter; that is on disk."""
        self._replica.joins = voter

    def resign(self) -> None:
        """Let another lead."""
        self._move(Cause.ASKED)

    def mute(self) -> None:
        """Its disk keeps nothing any more: from here on it follows, and neither votes nor stands nor leads."""
        self._replica.muted = True
        self._move(Cause.ASKED)

    def receive(self, message: Message) -> None:
        """A message for this node came."""
        self._replica.gone.discard(message.sender.node_id)
        if not self._is_meant(message) or not self._is_of_epoch(message):
            return
        match message:
            case Vote():
                self._vote(message)
            case VoteAnswer() | Told():
                self._hear(message.leader)
                self._told(message)
            case BeginEpoch():
                self._hear(message.sender)
            case EndEpoch():
                self._ended(message)
            case FetchAnswer() | SnapshotAnswer():
                self._hear(message.sender)
                self._fetched(message)
            case Fetch() | FetchSnapshot() | ChangeVoters():
                self._lead(message)

    def _is_meant(self, message: Message) -> bool:
        """Not a disk that this node has no more: what was promised there is not known here."""
        return not isinstance(message, Vote) or message.voter == self.me

    def _is_of_epoch(self, message: Message) -> bool:
        """A higher epoch is this one's too from here on; who is in a lower one is told, unless it only answered."""
        if message.epoch > self.epoch:
            self._replica.promise(Ballot(message.epoch))
            self._move(Cause.EPOCH)
        if message.epoch < self.epoch:
            self._correct(message)
            return False
        return True

    def _is_leader(self, node_id: int) -> bool:
        return self.leader is not None and self.leader.node_id == node_id

    # -- by kind of message -------------------------------------------------------------------------

    def _correct(self, message: Message) -> None:
        replica = self._replica
        if isinstance(message, Vote):
            answer = VoteAnswer(
                self.me, self.epoch, message.sender, replica.known_leader, granted=False, pre=message.pre
            )
            replica.send(message.sender.node_id, answer)
        elif isinstance(message, _REQUESTS):
            replica.tell(message.sender)

    def _vote(self, vote: Vote) -> None:
        replica = self._replica
        granted = grants(replica, vote)
        if granted and not vote.pre:
            replica.promise(Ballot(self.epoch, vote.sender))
            self._move(Cause.VOTED)
        answer = VoteAnswer(self.me, self.epoch, vote.sender, replica.known_leader, granted, vote.pre)
        replica.send(vote.sender.node_id, answer)

    def _hear(self, leader: ReplicaId | None) -> None:
        """Somebody leads this epoch: what another directory of this node is said to lead, nobody does."""
        if leader is None or leader.node_id == self.me.node_id:
            return
        if (self.role, Cause.LEADER) in TRANSITIONS:
            self._replica.leader = leader
            self._move(Cause.LEADER)

    def _told(self, message: VoteAnswer | Told) -> None:
        if isinstance(message, Told):
            # The leader's node itself says so, with another directory or after a restart.
            of_leader = self.leader is not None and message.sender.node_id == self.leader.node_id
            if of_leader and message.leader is None:
                self._move(Cause.ENDED)
        elif isinstance(self._part, CandidateRole) and message.candidate == self.me:
            self._move(self._part.take(message))

    def _ended(self, message: EndEpoch) -> None:
        if self.leader in (None, message.sender) and self.role is RaftRole.FOLLOWER:
            first = message.successors[:1] == (self.me,)
            self._move(Cause.CALLED if first and self._replica.votes else Cause.ENDED)

    def _fetched(self, answer: FetchAnswer | SnapshotAnswer) -> None:
        if isinstance(self._part, FollowerRole) and answer.sender == self.leader:
            if isinstance(answer, FetchAnswer):
                self._part.take(answer)
            else:
                self._part.take_snapshot(answer)

    def _lead(self, message: Fetch | FetchSnapshot | ChangeVoters) -> None:
        if not isinstance(self._part, LeaderRole):
            self._replica.tell(message.sender)
        elif isinstance(message, Fetch):
            self._move(self._part.fetch(message))
        elif isinstance(message, FetchSnapshot):
            self._part.fetch_snapshot(message)
        else:
            self._part.change(message.change)

    # -- roles --------------------------------------------------------------------------------------

    def _move(self, cause: Cause | None) -> None:
        """Take on the roles that follow from the cause, one after another."""
        while cause is not None:
            role = TRANSITIONS.get((self.role, cause))
            if role is None:
                return
            cause = self._enter(role, cause)

    def _enter(self, role: RaftRole, cause: Cause) -> Cause | None:
        """Take on a role; why to leave it at once, if that is so."""
        replica = self._replica
        before = self._part
        split = replica.role is RaftRole.CANDIDATE and cause is Cause.LOST
        replica.role = role
        if role is not RaftRole.FOLLOWER:
            replica.leader = self.me if role is RaftRole.LEADER else None
        replica.confirmed = role is RaftRole.LEADER
        if isinstance(before, LeaderRole):
            before.close() if cause is Cause.EPOCH else before.end()
        self._part = self._part_of(role, replica, split=split)
        replica.became()
        self._part.open()
        return self._part.outcome if isinstance(self._part, CandidateRole) else None

    def _part_of(
        self, role: RaftRole, replica: RaftCore, *, split: bool
    ) -> UnattachedRole | CandidateRole | FollowerRole | LeaderRole:
        match role:
            case RaftRole.LEADER:
                return LeaderRole(replica)
            case RaftRole.FOLLOWER if replica.leader is not None:
                return FollowerRole(replica, replica.leader)
            case RaftRole.PROSPECTIVE | RaftRole.CANDIDATE:
                return CandidateRole(replica, pre=role is RaftRole.PROSPECTIVE)
            case _ if split and replica.gone and replica.may_win:
                # All that are there have answered, and for want of the others nobody won: no need to wait for them.
                return UnattachedRole(replica, replica.chance(replica.timeouts.election_ms // 2 + 1))
            case _:
                return UnattachedRole(replica)
