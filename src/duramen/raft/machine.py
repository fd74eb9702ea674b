"""A replica of the quorum: takes messages, time and synced offsets, and returns effects. Pure.

This is Raft over Fetch, as in KIP-595. Each role has its own module. The table in `roles` has the transitions. This
module dispatches input to the current role.
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
    CurrentLeader,
    EndEpoch,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    Message,
    SnapshotAnswer,
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
    """The state machine of the replica `me`, from its disk state. After each call, `take` has the effects.

    `seeds` are the nodes that a replica without voters asks; `joins` is the voter that it is to become.
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

    # -- state --------------------------------------------------------------------------------------

    @property
    def core(self) -> RaftCore:
        """The state that is common to all roles."""
        return self._replica

    @property
    def part(self) -> UnattachedRole | CandidateRole | FollowerRole | LeaderRole:
        """The state of the current role."""
        return self._part

    @property
    def me(self) -> ReplicaId:
        """The replica's id."""
        return self._replica.me

    @property
    def role(self) -> RaftRole:
        """The replica's role."""
        return self._replica.role

    @property
    def epoch(self) -> int:
        """The newest epoch that the replica knows."""
        return self._replica.epoch

    @property
    def leader(self) -> ReplicaId | None:
        """The leader of the epoch, if it is known."""
        return self._replica.leader

    @property
    def damaged(self) -> bool:
        """Whether the replica may lack entries that it has acknowledged; see `RaftDiskState`."""
        return self._replica.damaged

    @property
    def voters(self) -> Voters:
        """The voters, committed or not."""
        return self._replica.voters.latest

    @property
    def end(self) -> EpochEnd:
        """The end of the log, including entries that are not written yet."""
        return self._replica.log.end

    @property
    def start(self) -> EpochEnd:
        """The end of the snapshot at the start of the log."""
        return self._replica.log.start

    @property
    def high_watermark(self) -> int:
        """The offset below which all entries are committed."""
        return self._replica.high_watermark

    @property
    def synced_offset(self) -> int:
        """The offset below which all entries are on disk."""
        return self._replica.synced_offset

    @property
    def synced_end(self) -> EpochEnd:
        """The end of the synced part of the log."""
        synced_offset = self._replica.synced_offset
        return EpochEnd(self._replica.log.epoch_below(synced_offset), synced_offset)

    @property
    def deadline_ms(self) -> int:
        """The time at which `tick` has something to do, unless another event comes first."""
        return self._part.deadline_ms

    def epoch_below(self, offset: int) -> int:
        """The epoch of the entry before `offset`; at or below the start, the epoch of the snapshot's last entry."""
        return self._replica.log.epoch_below(offset)

    def take(self) -> list[Effect]:
        """The effects since the last call, in order; see `effects`."""
        effects, self._replica.effects = self._replica.effects, []
        return effects

    # -- events -------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Advance the time to `now_ms`, from this replica's own monotonic clock."""
        self._replica.now_ms = max(now_ms, self._replica.now_ms)
        self._move(self._part.tick())

    def synced(self, end: EpochEnd) -> None:
        """Note that the entries up to `end` are on disk; ignored if they are not part of the log any more."""
        replica = self._replica
        if end.offset > replica.synced_offset and replica.log.holds(end):
            replica.synced_offset = end.offset
            if isinstance(self._part, LeaderRole):
                self._move(self._part.synced())
            elif isinstance(self._part, FollowerRole):
                self._part.synced()

    def connected(self, node_id: int) -> None:
        """Note a new connection to this node."""
        self._replica.gone.discard(node_id)
        part = self._part
        if isinstance(part, LeaderRole | CandidateRole) or (
            isinstance(part, FollowerRole) and self._is_leader(node_id)
        ):
            part.connected()

    def disconnected(self, node_id: int) -> None:
        """Note that the last connection to this node closed: a first sign, but no proof, that the node has ended."""
        self._replica.gone.add(node_id)
        if isinstance(self._part, CandidateRole):
            self._move(self._part.outcome)
        elif isinstance(self._part, UnattachedRole):
            self._part.disconnected(node_id)
        elif isinstance(self._part, FollowerRole) and self._is_leader(node_id):
            self._part.disconnected()

    def heard(self, leader: ReplicaId, epoch: int) -> None:
        """Note a chunk of a snapshot from the leader of this epoch."""
        if isinstance(self._part, FollowerRole) and leader == self.leader and epoch == self.epoch:
            self._part.heard()

    def compacted(self, offset: int) -> None:
        """Move the start of the log to `offset`: a snapshot holds the entries below it, which are committed."""
        replica = self._replica
        if replica.log.start.offset < offset <= min(replica.high_watermark, replica.synced_offset):
            replica.voters.start_at(offset)
            replica.log.start_at(offset)

    def propose(self, payload: object, count: int = 1) -> EpochEnd | VoterChangeRefusal:
        """Append a batch of entries; returns its end. The batch is not committed yet."""
        return (
            self._part.propose(payload, count) if isinstance(self._part, LeaderRole) else VoterChangeRefusal.NOT_LEADER
        )

    def change(self, change: Change) -> EpochEnd | VoterChangeRefusal:
        """Append a change of the voters; returns the end of its entry."""
        return self._part.change(change) if isinstance(self._part, LeaderRole) else VoterChangeRefusal.NOT_LEADER

    def join(self, voter: Voter) -> None:
        """Become this voter; its description is on disk."""
        self._replica.joins = voter

    def resign(self) -> None:
        """Resign, so that another replica leads."""
        self._move(Cause.ASKED)

    def mute(self) -> None:
        """Only follow from now on, without voting or leading: the disk stores nothing any more."""
        self._replica.muted = True
        self._move(Cause.ASKED)

    def receive(self, message: Message) -> None:
        """Handle a message for this node."""
        self._replica.gone.discard(message.sender.node_id)
        if not self._is_meant(message) or not self._is_of_epoch(message):
            return
        match message:
            case Vote():
                self._vote(message)
            case VoteAnswer() | CurrentLeader():
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
        """Whether the message is for this directory: the promises of an earlier directory are not known here."""
        return not isinstance(message, Vote) or message.voter == self.me

    def _is_of_epoch(self, message: Message) -> bool:
        """Adopt a higher epoch; tell the epoch to the sender of a request with a lower one."""
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
        """Learn the leader of this epoch; a leader with this node's id and another directory is ignored."""
        if leader is None or leader.node_id == self.me.node_id:
            return
        if (self.role, Cause.LEADER) in TRANSITIONS:
            self._replica.leader = leader
            self._move(Cause.LEADER)

    def _told(self, message: VoteAnswer | CurrentLeader) -> None:
        if isinstance(message, CurrentLeader):
            # The leader's own node says that it leads no more, with another directory or after a restart.
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
        """Enter the roles that follow from the cause, one after another."""
        while cause is not None:
            role = TRANSITIONS.get((self.role, cause))
            if role is None:
                return
            cause = self._enter(role, cause)

    def _enter(self, role: RaftRole, cause: Cause) -> Cause | None:
        """Enter a role; returns a cause to leave it at once, if there is one."""
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
                # All reachable voters have responded and the others are missing: waiting longer is useless.
                return UnattachedRole(replica, replica.chance(replica.timeouts.election_ms // 2 + 1))
            case _:
                return UnattachedRole(replica)
