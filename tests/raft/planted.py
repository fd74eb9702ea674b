"""Bugs to be planted in the quorum, one at a time: the simulation has to find each of them."""

from collections.abc import Callable
from typing import Any, Final

from tests.sim.planted import Bug, Place

from duramen.raft import machine
from duramen.raft.ballots import Ballot, Count
from duramen.raft.effects import Persist
from duramen.raft.epochs import EpochEnd
from duramen.raft.follower import FollowerRole
from duramen.raft.leader import LeaderRole
from duramen.raft.machine import RaftMachine
from duramen.raft.messages import EntryBatch, Message, Vote, VoteAnswer
from duramen.raft.progress import VoterProgress
from duramen.raft.replica import RaftCore, RaftDiskState
from duramen.raft.roles import RaftRole
from duramen.raft.voter_changes import Change, VoterChangeRefusal
from duramen.raft.voters import ReplicaId, Voters

__all__ = ["BUGS", "VOTE_DAMAGED"]

Original = Callable[..., Any]


def _promise_in_memory(right: Original) -> Original:
    def promise(self: RaftCore, ballot: Ballot) -> None:
        right(self, ballot)
        at = max(at for at, effect in enumerate(self.effects) if isinstance(effect, Persist))
        self.effects[at] = Persist(Ballot(ballot.epoch))

    return promise


def _any_disk(right: Original) -> Original:
    del right

    def _is_meant(self: RaftMachine, message: Message) -> bool:
        return not isinstance(message, Vote) or message.voter.node_id == self.me.node_id

    return _is_meant


def _count_by_node(right: Original) -> Original:
    def take(self: Count, voter: ReplicaId, granted: bool) -> None:
        right(self, self._voters.of_node(voter.node_id) or voter, granted)

    return take


def _count_earlier(right: Original) -> Original:
    del right

    def _may_commit(self: LeaderRole, end_offset: int) -> bool:
        del self, end_offset
        return True

    return _may_commit


def _report_written(right: Original) -> Original:
    def append(self: RaftCore, batch: EntryBatch) -> None:
        right(self, batch)
        if self.role is RaftRole.FOLLOWER:
            self.synced_offset = self.log.end.offset

    return append


def _forget_epoch_of_votes(right: Original) -> Original:
    def _is_of_epoch(self: RaftMachine, message: Message) -> bool:
        return isinstance(message, VoteAnswer) or bool(right(self, message))

    return _is_of_epoch


def _forget_epoch_of_fetches(right: Original) -> Original:
    def _is_of_epoch(self: RaftMachine, message: Message) -> bool:
        return not isinstance(message, Vote | VoteAnswer) or bool(right(self, message))

    return _is_of_epoch


def _vote_for_anybody(right: Original) -> Original:
    def grants(replica: RaftCore, vote: Vote) -> bool:
        return bool(right(replica, vote._replace(end=max(vote.end, replica.log.end))))

    return grants


def _change_uncommitted(right: Original) -> Original:
    def change(self: LeaderRole, change: Change) -> EpochEnd | VoterChangeRefusal:
        replica = self._replica
        known, replica.high_watermark = replica.high_watermark, max(replica.high_watermark, replica.log.end.offset)
        found: EpochEnd | VoterChangeRefusal = right(self, change)
        replica.high_watermark = known
        return found

    return change


def _half(right: Original) -> Original:
    def majority_offset(self: VoterProgress, voters: Voters, own_synced_offset: int) -> int:
        if len(voters) % 2:
            return int(right(self, voters, own_synced_offset))
        return int(right(self, voters.without(self.successors(voters)[-1]), own_synced_offset))

    return majority_offset


def _believe_late(right: Original) -> Original:
    def take(self: FollowerRole, answer: Any) -> None:
        if self.waiting is not None:
            answer = answer._replace(asked=self.waiting)
        right(self, answer)

    return take


def _count_on_damaged(right: Original) -> Original:
    def begin(
        self: RaftCore,
        me: ReplicaId,
        kept: RaftDiskState,
        *,
        now_ms: int,
        chance: Any,
        timeouts: Any,
        seeds: tuple[int, ...],
    ) -> None:
        right(self, me, kept._replace(damaged=False), now_ms=now_ms, chance=chance, timeouts=timeouts, seeds=seeds)

    return begin


VOTE_DAMAGED: Final = Bug(
    "vote-damaged",
    "",
    (Place(RaftCore, "__init__", _count_on_damaged),),
    "vote, and be counted on, with a metadata log that has lost synced entries to damage",
)

BUGS: Final = (
    Bug("vote-twice", "vote twice after restart", (Place(RaftCore, "promise", _promise_in_memory),)),
    Bug(
        "vote-blank",
        "vote from a blank disk",
        (Place(RaftMachine, "_is_meant", _any_disk), Place(Count, "take", _count_by_node)),
    ),
    Bug(
        "commit-earlier",
        "commit an earlier epoch's record by counting",
        (Place(LeaderRole, "_may_commit", _count_earlier),),
    ),
    Bug("report-written", "report written for synced", (Place(RaftCore, "append", _report_written),)),
    Bug("forget-epoch", "forget the epoch check", (Place(RaftMachine, "_is_of_epoch", _forget_epoch_of_votes),)),
    Bug(
        "forget-epoch-of-fetches",
        "",
        (Place(RaftMachine, "_is_of_epoch", _forget_epoch_of_fetches),),
        "the same, of fetches",
    ),
    Bug("vote-behind", "", (Place(machine, "grants", _vote_for_anybody),), "vote for a log that lacks something"),
    Bug(
        "change-underway",
        "",
        (Place(LeaderRole, "change", _change_uncommitted),),
        "change voters while a change is open",
    ),
    Bug("half-is-enough", "", (Place(VoterProgress, "majority_offset", _half),), "take half of the voters for most"),
    Bug(
        "believe-late",
        "",
        (Place(FollowerRole, "take", _believe_late),),
        "take a late answer for that to the last fetch",
    ),
)
