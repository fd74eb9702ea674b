"""A follower: fetches from its leader, truncates diverging entries, loads snapshots, joins the voters. Pure."""

from duramen.base.errors import LogDamaged
from duramen.raft.epochs import EpochEnd
from duramen.raft.messages import ChangeVoters, EntryBatch, Fetch, FetchAnswer, FetchSnapshot, SnapshotAnswer
from duramen.raft.replica import RaftCore
from duramen.raft.roles import Cause
from duramen.raft.voter_changes import VoterAddition, VoterRemoval
from duramen.raft.voters import ReplicaId

__all__ = ["FollowerRole"]


class FollowerRole:
    """A follower of `leader` in this epoch; a learner that is to vote asks for it once it has caught up."""

    def __init__(self, replica: RaftCore, leader: ReplicaId) -> None:
        self._replica = replica
        self.leader = leader
        self._since = replica.fetches + 1
        self.waiting: Fetch | None = None
        self._snapshot: EpochEnd | None = None
        self._whole_offset: int | None = None  # where the leader's log ended once all of it was here
        self._until_ms = replica.now_ms + self._patience_ms()
        self._join_ms = replica.now_ms
        self._retry_ms = replica.now_ms

    def open(self) -> None:
        """Fetch for the first time."""
        self._fetch()

    @property
    def deadline_ms(self) -> int:
        """When `tick` has something to do."""
        return min(self._until_ms, self._retry_ms)

    def tick(self) -> Cause | None:
        """What the time makes of it."""
        if self._replica.now_ms >= self._until_ms:
            self._replica.doubts += 1
            return Cause.TIMEOUT if self._replica.votes else Cause.ENDED
        if self._replica.now_ms >= self._retry_ms:
            self._fetch()
        return None

    def disconnected(self) -> None:
        """The connection to the leader closed: it is given up soon, unless it answers what it was asked last."""
        replica = self._replica
        self._since = replica.fetches
        replica.confirmed = False
        self._until_ms = min(self._until_ms, replica.now_ms + self._patience_ms())

    def connected(self) -> None:
        """There is a connection to the leader again: what was asked may have gone with the last one."""
        self._until_ms = max(self._until_ms, self._replica.now_ms + self._patience_ms())
        self._fetch()

    def synced(self) -> None:
        """More of the log is on disk: fetch, which reports it, unless a fetch is on its way that does."""
        log_end = self._replica.log.end.offset
        self._heal()
        reported = self.waiting is not None and self.waiting.synced_offset == log_end
        if self._replica.synced_offset == log_end and self._snapshot is None and not reported:
            self._fetch()

    def take(self, answer: FetchAnswer) -> None:
        """The leader's answer: to the newest fetch, or to one before it where answers take longer than asking again.

        It counts where it was asked for since the leader is followed and reached, at the end of this log; another one
        says nothing, but that the leader is there. What is at an end is the same for ever, in the log of the leader of
        an epoch, so that an answer that comes late or twice does no harm. One that is late and brings nothing is no
        reason to ask again: the newest fetch is still on its way.
        """
        replica = self._replica
        before = replica.log.end
        if answer.asked.number < self._since or answer.asked.end != before or self._snapshot is not None:
            if replica.confirmed:
                # A leader that stood still answers first what was asked before that, and keeps what was asked since.
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
        """The leader answers: with all that was asked for, or with a piece of its snapshot."""
        replica = self._replica
        replica.confirmed = True
        replica.doubts = 0
        self._until_ms = replica.now_ms + self._patience_ms()
        if self._snapshot is not None:
            self._retry_ms = replica.now_ms + replica.timeouts.fetch_ms // 2

    def take_snapshot(self, answer: SnapshotAnswer) -> None:
        """The leader's snapshot, unless this replica is as far; one that comes late must be behind all of its log."""
        replica = self._replica
        least = replica.high_watermark if answer.snapshot == self._snapshot else replica.log.end.offset
        if answer.snapshot.offset <= least:
            return
        self._snapshot = None
        self.heard()
        replica.install(answer)

    # -- steps --------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """A damaged replica is whole once its disk has all that the leader's log had at any one time.

        What it acknowledged to this leader before the damage, that log has; of what it acknowledged to others, that log
        has what was committed, since it was elected without this replica. What is counted for this replica by leaders
        of earlier epochs is not told to anybody any more: its ballot is of this epoch.
        """
        replica = self._replica
        if replica.damaged and self._whole_offset is not None and replica.synced_offset >= self._whole_offset:
            replica.damaged = False

    def _patience_ms(self) -> int:
        """How long to wait for an answer of the leader.

        Who has given it up once, and follows it again because others do, soon asks them again: they may have noticed
        nothing yet. It waits longer each time, since it may be the only one that cannot reach the leader.
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
        """Cut to where the histories can still be the same: the end of that epoch, the leader's or this log's.

        Raises LogDamaged where that is committed: a majority of the voters has lost what it had synced.
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
        """Ask to be made a voter, one step at a time, as long as it is none.

        In the place of one of its node that has another directory, which is removed first, or as one more.
        """
        replica = self._replica
        if replica.joins is None or replica.votes or replica.muted or replica.damaged or replica.now_ms < self._join_ms:
            return
        self._join_ms = replica.now_ms + replica.timeouts.fetch_ms // 2
        present = replica.voters.latest.of_node(replica.me.node_id)
        change = VoterAddition(replica.joins) if present is None else VoterRemoval(present)
        replica.send(self.leader.node_id, ChangeVoters(replica.me, replica.epoch, change))
