"""A leader: opens its epoch, responds to fetches, commits entries that a majority has synced, changes voters. Pure."""

from duramen.raft.effects import Serve, ServeSnapshot
from duramen.raft.epochs import EpochEnd
from duramen.raft.messages import BeginEpoch, EndEpoch, EntryBatch, Fetch, FetchAnswer, FetchSnapshot, SnapshotAnswer
from duramen.raft.parked_fetches import ParkedRaftFetches
from duramen.raft.progress import VoterProgress
from duramen.raft.replica import RaftCore
from duramen.raft.roles import Cause
from duramen.raft.voter_changes import Change, VoterAddition, VoterChangeRefusal, changed
from duramen.raft.voters import ReplicaId

__all__ = ["LeaderRole"]


class LeaderRole:
    """The leader of this epoch. Its first entry opens the epoch; earlier entries are committed with it, never alone."""

    def __init__(self, replica: RaftCore) -> None:
        self._replica = replica
        self.progress = VoterProgress(replica.me, replica.now_ms)
        self.parked = ParkedRaftFetches()
        self.first_offset = replica.log.end.offset
        self._begin_ms = replica.now_ms

    def open(self) -> None:
        """Append the epoch's first entry, and tell the voters."""
        replica = self._replica
        # The first log of a cluster names the voters, so that a replica with an empty disk learns them from the log.
        unsaid = replica.voters.latest_offset < 0 and replica.log.start.offset == 0
        replica.append(EntryBatch(replica.epoch, self.first_offset, voters=replica.voters.latest if unsaid else None))
        self._begin()

    @property
    def deadline_ms(self) -> int:
        """The time at which `tick` has something to do."""
        times = [self._begin_ms, self._deserted_ms]
        if self.parked.deadline_ms is not None:
            times.append(self.parked.deadline_ms)
        return min(times)

    @property
    def _deserted_ms(self) -> int:
        replica = self._replica
        heard_ms = self.progress.majority_ms(replica.voters.latest, replica.now_ms)
        return heard_ms + replica.timeouts.desertion_ms

    def tick(self) -> Cause | None:
        """Respond to due fetches, or resign, according to the time."""
        now_ms = self._replica.now_ms
        if now_ms >= self._deserted_ms:
            return Cause.DESERTED
        if now_ms >= self._begin_ms:
            self._begin()
            self.progress.forget(now_ms - self._replica.timeouts.desertion_ms, self._replica.voters.latest)
        for fetch in self.parked.take_due(now_ms):
            self._answer(fetch)
        return None

    def connected(self) -> None:
        """Tell the voters again: one more may be reachable."""
        self._begin()

    def _begin(self) -> None:
        """Send BeginEpoch to the silent voters."""
        replica = self._replica
        self._begin_ms = replica.now_ms + replica.timeouts.retry_ms
        silent_ms = replica.now_ms - replica.timeouts.wait_ms - 2 * replica.timeouts.retry_ms
        for voter in replica.voters.latest.ids:
            if voter != replica.me and self.progress.fetched_ms(voter) <= max(silent_ms, self.progress.since_ms):
                replica.send(voter.node_id, BeginEpoch(replica.me, replica.epoch))

    def end(self) -> None:
        """Resign: tell the voters the order of successors, and release the parked fetches."""
        replica = self._replica
        successors = self.progress.successors(replica.voters.latest)
        for voter in successors:
            replica.send(voter.node_id, EndEpoch(replica.me, replica.epoch, successors))
        self.close()

    def close(self) -> None:
        """Release the parked fetches: another epoch has begun."""
        for fetch in self.parked.take():
            self._replica.tell(fetch.sender)

    # -- appends ------------------------------------------------------------------------------------

    def propose(self, payload: object, count: int) -> EpochEnd:
        """Append entries and return the new end of the log."""
        replica = self._replica
        replica.append(EntryBatch(replica.epoch, replica.log.end.offset, count, payload))
        self._wake()
        return replica.log.end

    def change(self, change: Change) -> EpochEnd | VoterChangeRefusal:
        """Append a change of the voters, which is in force at once; returns the end of its entry, or a refusal."""
        replica = self._replica
        if replica.high_watermark <= self.first_offset:
            return VoterChangeRefusal.NOT_READY
        if replica.voters.latest_offset >= replica.high_watermark:
            return VoterChangeRefusal.UNDERWAY
        voters = changed(replica.voters.latest, change)
        if isinstance(voters, VoterChangeRefusal):
            return voters
        if isinstance(change, VoterAddition) and not self._caught_up(change.voter.id):
            return VoterChangeRefusal.NOT_CAUGHT_UP
        replica.append(EntryBatch(replica.epoch, replica.log.end.offset, voters=voters))
        self._wake()
        return replica.log.end

    def _caught_up(self, learner: ReplicaId) -> bool:
        replica = self._replica
        heard = self.progress.fetched_ms(learner) > replica.now_ms - replica.timeouts.fetch_ms
        return heard and self.progress.synced_offset(learner) >= replica.high_watermark

    def synced(self) -> Cause | None:
        """Commit the entries that a majority has synced.

        A leader that lacks an entry of an earlier epoch may still truncate it although a majority has it. This is
        impossible once an entry of this epoch follows it (Raft, section 5.4.2).
        """
        replica = self._replica
        end = self.progress.majority_offset(replica.voters.latest, replica.synced_offset)
        if self._may_commit(end) and replica.commit(end):
            self._wake()
            if not replica.votes and replica.voters.latest_offset < replica.high_watermark:
                return Cause.REMOVED
        return None

    def _may_commit(self, end_offset: int) -> bool:
        return end_offset > self.first_offset

    # -- fetches ------------------------------------------------------------------------------------

    def fetch(self, fetch: Fetch) -> Cause | None:
        """Respond to a fetch of this epoch now, or park it."""
        replica = self._replica
        self.parked.drop(fetch.sender)
        self.progress.heard(fetch.sender, replica.now_ms)
        cause = None
        if self._valid(fetch.end) and self.progress.reached(fetch.sender, min(fetch.synced_offset, fetch.end.offset)):
            cause = self.synced()
        if fetch.end == replica.log.end and fetch.high_watermark >= replica.high_watermark:
            self.parked.park(fetch, replica.now_ms + replica.timeouts.wait_ms)
        else:
            self._answer(fetch)
        return cause

    def fetch_snapshot(self, asked: FetchSnapshot) -> None:
        """Send the snapshot at the start of the log; a replica that asks for an older one fetches again."""
        replica = self._replica
        self.progress.heard(asked.sender, replica.now_ms)
        start = replica.log.start
        if asked.snapshot == start:
            voters = replica.voters.at(start.offset)
            replica.effects.append(
                ServeSnapshot(asked.sender.node_id, SnapshotAnswer(replica.me, replica.epoch, start, voters))
            )

    def _valid(self, end: EpochEnd) -> bool:
        """Whether a log with this end is a prefix of this log."""
        return self._replica.log.holds(end)

    def _answer(self, fetch: Fetch) -> None:
        replica = self._replica
        answer = FetchAnswer(replica.me, replica.epoch, fetch, replica.high_watermark)
        if self._valid(fetch.end):
            replica.effects.append(Serve(fetch.sender.node_id, answer))
            return
        if replica.log.knows(fetch.end):
            answer = answer._replace(diverging=replica.log.end_of(fetch.end.epoch))
        else:
            answer = answer._replace(snapshot=replica.log.start)
        replica.send(fetch.sender.node_id, answer)

    def _wake(self) -> None:
        for fetch in self.parked.take():
            self._answer(fetch)
