"""A follower: it fetches from its leader, truncates diverging entries, loads snapshots, joins the voters. Pure."""

from duramen.base.errors import LogDamaged
from duramen.raft.epochs import EpochEnd
from duramen.raft.messages import ChangeVoters, EntryBatch, Fetch, FetchAnswer, FetchSnapshot, SnapshotAnswer
from duramen.raft.replica import RaftCore
from duramen.raft.roles import Cause
from duramen.raft.voter_changes import VoterAddition, VoterRemoval
from duramen.raft.voters import ReplicaId

__all__ = ["FollowerRole"]


class FollowerRole:
    """A follower of `leader` in this epoch; a learner asks for its vote once it has caught up."""

    def __init__(self, replica: RaftCore, leader: ReplicaId) -> None:
        self._replica = replica
        self.leader = leader
        self._since = replica.fetches + 1
        self.waiting: Fetch | None = None
        self._snapshot: EpochEnd | None = None
        self._whole_offset: int | None = None  # the leader's log end at a time at which this log was complete
        self._until_ms = replica.now_ms + self._patience_ms()
        self._join_ms = replica.now_ms
        self._retry_ms = replica.now_ms

    def open(self) -> None:
        """Send the first fetch."""
        self._fetch()

    @property
    def deadline_ms(self) -> int:
        """The time at which `tick` has something to do."""
        return min(self._until_ms, self._retry_ms)

    def tick(self) -> Cause | None:
        """Fetch again, or give up the leader, according to the time."""
        if self._replica.now_ms >= self._until_ms:
            self._replica.doubts += 1
            return Cause.TIMEOUT if self._replica.votes else Cause.ENDED
        if self._replica.now_ms >= self._retry_ms:
            self._fetch()
        return None

    def disconnected(self) -> None:
        """Give up the leader soon after its connection closed, unless it responds to the newest fetch."""
        replica = self._replica
        self._since = replica.fetches
        replica.confirmed = False
        self._until_ms = min(self._until_ms, replica.now_ms + self._patience_ms())

    def connected(self) -> None:
        """Fetch again over the new connection to the leader: the last fetch may be lost with the old connection."""
        self._until_ms = max(self._until_ms, self._replica.now_ms + self._patience_ms())
        self._fetch()

    def synced(self) -> None:
        """Fetch to report more synced entries, unless a pending fetch reports them."""
        log_end = self._replica.log.end.offset
        self._heal()
        reported = self.waiting is not None and self.waiting.synced_offset == log_end
        if self._replica.synced_offset == log_end and self._snapshot is None and not reported:
            self._fetch()

    def take(self, answer: FetchAnswer) -> None:
        """Apply the leader's response to the newest fetch, or to an earlier one if responses are slower than retries.

        The response counts only if its fetch is recent enough (`_since`) and starts at the present end of this log.
        Any other response only shows that the leader is alive. The entries at an end never change in the log of an
        epoch's leader, so a late or repeated response does no harm. A late response without entries causes no new
        fetch: the newest fetch is still pending.
        """
        replica = self._replica
        before = replica.log.end
        if answer.asked.number < self._since or answer.asked.end != before or self._snapshot is not None:
            if replica.confirmed:
                # A leader that paused answers the earlier fetches first, and parks the later ones.
                self._until_ms = max(self._until_ms, replica.now_ms + replica.timeouts.fetch_ms)
            return
        newest = answer.asked == self.waiting
        self.heard()
        if answer.snapshot is not None:
            self.waiting = None
            self._ask_snapshot(answer.snapshot)
            return
        if answer.diverging is not None:
            self._diverge(answer.diverging)
        else:
            self._take_batches(answer.batches)
            replica.commit(min(answer.high_watermark, replica.log.end.offset))
            if newest and not answer.batches:
                self._whole_offset = before.offset
                self._heal()
        if newest or replica.log.end != before:
            self.waiting = None
            if replica.muted or replica.synced_offset == replica.log.end.offset or not answer.batches:
                self._fetch()
        if replica.high_watermark == answer.high_watermark and answer.diverging is None:
            self._join()

    def heard(self) -> None:
        """Record a sign of life of the leader: a complete response, or a chunk of its snapshot."""
        replica = self._replica
        replica.confirmed = True
        replica.doubts = 0
        self._until_ms = replica.now_ms + self._patience_ms()
        if self._snapshot is not None:
            self._retry_ms = replica.now_ms + replica.timeouts.fetch_ms // 2

    def take_snapshot(self, answer: SnapshotAnswer) -> None:
        """Install the leader's snapshot, unless the log is as far; a late snapshot must be ahead of the whole log."""
        replica = self._replica
        least = replica.high_watermark if answer.snapshot == self._snapshot else replica.log.end.offset
        if answer.snapshot.offset <= least:
            return
        self._snapshot = None
        self.heard()
        replica.install(answer)

    # -- steps --------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """End the damaged state once the disk has all entries that the leader's log had at some point in time.

        The leader's log has every entry that this replica acknowledged to this leader before the damage. Of the entries
        acknowledged to other leaders it has the committed ones, since it was elected without this replica. Leaders of
        earlier epochs cannot use their counts of this replica's entries any more: its ballot is of this epoch.
        """
        replica = self._replica
        if replica.damaged and self._whole_offset is not None and replica.synced_offset >= self._whole_offset:
            replica.damaged = False

    def _patience_ms(self) -> int:
        """The time to wait for a response of the leader.

        A follower that gave up its leader once, and follows it again because other voters do, asks them again soon:
        they may not have noticed the failure yet. The time grows with each attempt, since this replica may be the only
        one that cannot reach the leader.
        """
        replica = self._replica
        timeouts = replica.timeouts
        if self.leader.node_id in replica.gone:
            return timeouts.shortly_ms(replica.chance, replica.doubts)
        if replica.doubts:
            return timeouts.wait_ms + timeouts.shortly_ms(replica.chance, replica.doubts)
        return timeouts.silence_ms(replica.chance)

    def _fetch(self) -> None:
        replica = self._replica
        self._snapshot = None
        self._retry_ms = replica.now_ms + replica.timeouts.wait_ms + replica.timeouts.retry_ms
        self.waiting = replica.next_fetch()
        replica.send(self.leader.node_id, self.waiting)

    def _ask_snapshot(self, snapshot: EpochEnd) -> None:
        replica = self._replica
        self._snapshot = snapshot
        self._retry_ms = replica.now_ms + replica.timeouts.fetch_ms // 2
        replica.send(self.leader.node_id, FetchSnapshot(replica.me, replica.epoch, snapshot))

    def _diverge(self, theirs: EpochEnd) -> None:
        """Truncate at the last possible common offset: the end of that epoch in the leader's log or in this one.

        Raises LogDamaged if this would remove committed entries: a majority of the voters has lost synced entries.
        """
        place = self._replica.log.meeting(theirs)
        if place < self._replica.high_watermark:
            raise LogDamaged(
                f"the committed part of the metadata log ends at offset {self._replica.high_watermark}, and the log of"
                f" the leader {self.leader} diverges from it at {place}"
            )
        self._replica.cut(place)

    def _take_batches(self, batches: tuple[EntryBatch, ...]) -> None:
        for batch in batches:
            end = self._replica.log.end
            if batch.first != end.offset or not end.epoch <= batch.epoch <= self._replica.epoch:
                return
            self._replica.append(batch)

    def _join(self) -> None:
        """Ask to become a voter, one step at a time, until the replica is a voter.

        If another directory of its node is a voter, that voter is removed first; otherwise the replica is added.
        """
        replica = self._replica
        if replica.joins is None or replica.votes or replica.muted or replica.damaged or replica.now_ms < self._join_ms:
            return
        self._join_ms = replica.now_ms + replica.timeouts.fetch_ms // 2
        present = replica.voters.latest.of_node(replica.me.node_id)
        change = VoterAddition(replica.joins) if present is None else VoterRemoval(present)
        replica.send(self.leader.node_id, ChangeVoters(replica.me, replica.epoch, change))
