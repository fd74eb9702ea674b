"""Elections: candidates ask first whether they would win (KIP-996); and the voters' replies. Pure."""

from duramen.raft.ballots import Ballot, Count
from duramen.raft.messages import Vote, VoteAnswer
from duramen.raft.replica import RaftCore
from duramen.raft.roles import Cause, RaftRole

__all__ = ["CandidateRole", "grants"]


def grants(replica: RaftCore, vote: Vote) -> bool:
    """Whether a voter grants what is asked in its own epoch.

    A log that lacks what this one has is never granted anything: a majority holds whatever is committed. Nor is a
    pre-vote as long as this one has the leader: its connection is open and its answers come. Of two that ask at a time
    one yields, or they would take the votes of the next epoch from each other. A replica whose disk keeps no promise
    gives none; nor does one that may lack what it has acknowledged, for that may be on no other log that votes.
    """
    if replica.muted or replica.damaged or vote.end < replica.log.end or replica.role is RaftRole.LEADER:
        return False
    if vote.pre:
        rival = replica.role is RaftRole.PROSPECTIVE and vote.end == replica.log.end and vote.sender < replica.me
        return not replica.confirmed and not rival
    return replica.role in (RaftRole.UNATTACHED, RaftRole.PROSPECTIVE) and replica.ballot.allows(vote.sender)


class CandidateRole:
    """A prospective, or a candidate, which has promised its own vote to itself in a new epoch."""

    def __init__(self, replica: RaftCore, *, pre: bool) -> None:
        self._replica = replica
        self._pre = pre
        if not pre:
            replica.promise(Ballot(replica.epoch + 1, replica.me))
        self.count = Count(replica.voters.latest, replica.me)
        self._until_ms = replica.now_ms + replica.timeouts.before_standing_ms(replica.chance)
        self._ask_ms = replica.now_ms

    def open(self) -> None:
        """Ask the other voters."""
        self._ask()

    @property
    def deadline_ms(self) -> int:
        """When `tick` has something to do."""
        return min(self._until_ms, self._ask_ms)

    @property
    def outcome(self) -> Cause | None:
        """How it went, once that is known."""
        if self.count.won:
            return Cause.WON
        return Cause.LOST if self.count.is_lost(self._replica.gone) else None

    def tick(self) -> Cause | None:
        """What the time makes of it."""
        if self._replica.now_ms >= self._until_ms:
            return Cause.TIMEOUT
        if self._replica.now_ms >= self._ask_ms:
            self._ask()
        return None

    def take(self, answer: VoteAnswer) -> Cause | None:
        """An answer of this epoch."""
        if answer.pre != self._pre:
            return None
        self.count.take(answer.sender, answer.granted)
        return self.outcome

    def connected(self) -> None:
        """One more voter may be there."""
        self._ask()

    def _ask(self) -> None:
        replica = self._replica
        self._ask_ms = replica.now_ms + replica.timeouts.retry_ms
        for voter in self.count.unheard:
            replica.send(voter.node_id, Vote(replica.me, replica.epoch, voter, replica.log.end, self._pre))
