"""Elections: candidates send pre-votes first (KIP-996), and voters respond. Pure."""

from duramen.raft.ballots import Ballot, Count
from duramen.raft.messages import Vote, VoteAnswer
from duramen.raft.replica import RaftCore
from duramen.raft.roles import Cause, RaftRole

__all__ = ["CandidateRole", "grants"]


def grants(replica: RaftCore, vote: Vote) -> bool:
    """Whether a voter grants a vote or pre-vote of its own epoch.

    A voter never votes for a candidate whose log is behind its own: a majority holds every committed entry. It refuses
    a pre-vote while it has a responsive leader with an open connection. Of two concurrent prospective candidates one
    yields: otherwise they would take the votes of the next epoch from each other. A replica whose disk cannot store a
    promise grants nothing. Nor does a replica that may lack acknowledged entries, since possibly no other voter's log
    has them.
    """
    if replica.muted or replica.damaged or vote.end < replica.log.end or replica.role is RaftRole.LEADER:
        return False
    if vote.pre:
        rival = replica.role is RaftRole.PROSPECTIVE and vote.end == replica.log.end and vote.sender < replica.me
        return not replica.confirmed and not rival
    return replica.role in (RaftRole.UNATTACHED, RaftRole.PROSPECTIVE) and replica.ballot.allows(vote.sender)


class CandidateRole:
    """A prospective replica, or a candidate that has voted for itself in a new epoch."""

    def __init__(self, replica: RaftCore, *, pre: bool) -> None:
        self._replica = replica
        self._pre = pre
        if not pre:
            replica.promise(Ballot(replica.epoch + 1, replica.me))
        self.count = Count(replica.voters.latest, replica.me)
        self._until_ms = replica.now_ms + replica.timeouts.before_standing_ms(replica.chance)
        self._ask_ms = replica.now_ms

    def open(self) -> None:
        """Send the vote requests to the other voters."""
        self._ask()

    @property
    def deadline_ms(self) -> int:
        """The time at which `tick` has something to do."""
        return min(self._until_ms, self._ask_ms)

    @property
    def outcome(self) -> Cause | None:
        """The result of the election, once it is known."""
        if self.count.won:
            return Cause.WON
        return Cause.LOST if self.count.is_lost(self._replica.gone) else None

    def tick(self) -> Cause | None:
        """Retry, or end the election, according to the time."""
        if self._replica.now_ms >= self._until_ms:
            return Cause.TIMEOUT
        if self._replica.now_ms >= self._ask_ms:
            self._ask()
        return None

    def take(self, answer: VoteAnswer) -> Cause | None:
        """Count a response of this epoch."""
        if answer.pre != self._pre:
            return None
        self.count.take(answer.sender, answer.granted)
        return self.outcome

    def connected(self) -> None:
        """Ask again: one more voter may be reachable."""
        self._ask()

    def _ask(self) -> None:
        replica = self._replica
        self._ask_ms = replica.now_ms + replica.timeouts.retry_ms
        for voter in self.count.unheard:
            replica.send(voter.node_id, Vote(replica.me, replica.epoch, voter, replica.log.end, self._pre))
