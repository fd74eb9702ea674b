"""A leader: responds to fetches, raises the high watermark, maintains the in-sync set, completes acks=all. Pure."""

from collections.abc import Collection
from typing import NamedTuple

from duramen.replication.effects import ProposeInSyncSet, Release, ServeReplicaFetch, TransferLeadership
from duramen.replication.insync import InSync
from duramen.replication.messages import (
    AlterPartitionAnswer,
    InSyncReplica,
    Permit,
    ReplicaFetch,
    ReplicaFetchAnswer,
    ReplicaRefusal,
)
from duramen.replication.parked_fetches import ParkedReplicaFetches
from duramen.replication.partition import Topology
from duramen.replication.progress import FollowerProgress
from duramen.replication.replica import ReplicaCore
from duramen.replication.slowness import Slowness
from duramen.replication.waiters import Waiters

__all__ = ["Behind", "PartitionLeaderRole"]


class Behind(NamedTuple):
    """A follower that lacks records of a partition: how many, None if it has not reported yet.

    `waiting_ms` is how long it has lacked the first of them.
    """

    node_id: int
    records: int | None
    waiting_ms: int


class PartitionLeaderRole:
    """The leader of this epoch; the epoch's first record follows the present end of its log."""

    def __init__(self, replica: ReplicaCore) -> None:
        self._replica = replica
        self._in_sync = InSync(replica.state)
        self._slowness = Slowness(replica.config.eject_latency_ms, replica.timeouts.window_ms, replica.now_ms)
        self._progress = FollowerProgress(replica.now_ms, self._slowness.observe)
        self._parked = ParkedReplicaFetches()
        self._waiters = Waiters()
        self._first = replica.history.end_offset
        self._lent = -1
        self._hand_over_ms = replica.now_ms  # the earliest time of the next request for another leader
        self._moved = False  # whether the controller has named another leader before its log did

    def open(self) -> None:
        """Begin to lead; a leader that is alone in sync commits at once.

        If the previous leader has left the in-sync set, it may have been too slow.
        """
        takeovers = self._replica.history.takeovers_after(-1)
        before = takeovers[-1].leader_id if takeovers else self._replica.node_id
        if before in self._joining() and self._replica.config.eject_latency_ms is not None:
            self._slowness.suspect(before)
        self.synced()

    def close(self) -> None:
        """Complete the waiting requests: the replica no longer leads."""
        self._refuse_waiters()
        for fetch in self._parked.take(lambda _: True):
            self._replica.refuse(fetch, ReplicaRefusal.NOT_LEADER)

    def changed(self) -> None:
        """Apply the controller's change of the in-sync set or the assignment."""
        before = self._in_sync.committed
        self._in_sync.take(self._replica.state)
        for node_id in self._in_sync.committed - before:
            self._slowness.joined(node_id)
        self._progress.renew()
        self._progress.forget(self._replica.state.nodes)
        self._commit()
        if not self._has_enough():
            for waiter in self._waiters.take():
                self._replica.effects.append(Release(waiter, ReplicaRefusal.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        self._review()
        self._wake()
        for fetch in self._parked.take(self._is_missed):
            self._answer(fetch)

    def lost(self, message: ReplicaFetch | ReplicaFetchAnswer) -> None:
        """Respond to the fetch again soon, since a response was lost."""
        if isinstance(message, ReplicaFetchAnswer) and message.asked.leader_epoch == self._replica.leader_epoch:
            self._parked.park(message.asked, self._replica.now_ms + self._replica.timeouts.retry_ms)

    def placed(self) -> None:
        """Check whether a replica can join: the live nodes have changed."""
        self._review()

    def lets_join(self, live: Collection[int]) -> bool:
        """Whether one of these nodes has reported and is not in sync.

        A replica without a report changes nothing before it reports.
        """
        maximal, heard = self._in_sync.maximal, self._progress.heard
        return any(node in live and node not in maximal and heard(node) for node in self._replica.state.replicas)

    def latest_offset(self) -> int | None:
        """The end for clients: the high watermark, or None if an earlier leader may have reported a later one.

        Earlier reports are below the end with which this leader began (OFFSET_NOT_AVAILABLE of KIP-207).
        """
        high_watermark = self._replica.high_watermark
        return high_watermark if high_watermark >= self._first else None

    def covered(self, node_id: int, broker_epoch: int) -> int:
        """The offset below which all records are on that replica's disk, as reported under that registration."""
        return self._progress.covered(node_id) if self._progress.broker_epoch(node_id) >= broker_epoch else -1

    def behind(self) -> list[Behind]:
        """The followers that lack records."""
        replica = self._replica
        end_offset, waiting_ms = replica.history.end_offset, self._progress.waiting_ms(replica.now_ms)
        others = [node_id for node_id in replica.state.replicas if node_id != replica.node_id]
        return [
            Behind(node_id, None if covered < 0 else end_offset - covered, waiting_ms.get(node_id, 0))
            for node_id in self._progress.behind(others, end_offset)
            for covered in [self._progress.covered(node_id)]
        ]

    @property
    def awaits_others(self) -> bool:
        """Whether an in-sync or joining replica lacks records, or the set may change: only then connections matter.

        If a request waits for a record, then some replica lacks this record.
        """
        if len(self._in_sync.committed) < len(self._replica.state.replicas) or self._in_sync.in_flight is not None:
            return True
        return bool(self._progress.behind(self._in_sync.committed, self._replica.history.end_offset))

    @property
    def deadline_ms(self) -> int | None:
        """The time at which `tick` has something to do."""
        first_ms = self._review_ms()
        for due_ms in (self._parked.deadline_ms, self._slowness.deadline_ms, self._hand_over_due_ms()):
            if due_ms is not None and (first_ms is None or due_ms < first_ms):
                first_ms = due_ms
        return first_ms

    def tick(self) -> None:
        """Process the passed time."""
        for fetch in self._parked.take_due(self._replica.now_ms):
            self._answer(fetch)
        self._measure()
        self._hand_over()
        self._review()

    # -- writes -------------------------------------------------------------------------------------

    def refusal(self) -> ReplicaRefusal | None:
        """The reason to refuse appends under acks=all."""
        if self.deposed:
            return ReplicaRefusal.NOT_LEADER
        return None if self._has_enough() else ReplicaRefusal.NOT_ENOUGH_REPLICAS

    def cut_off(self) -> None:
        """Refuse requests that may never complete: the controller or a follower is unreachable."""
        if self.deposed:
            self._refuse_waiters()

    def moved(self) -> None:
        """Note that another node leads by now; the metadata record about it is still in transit."""
        self._moved = True
        self._refuse_waiters()

    @property
    def may_lead(self) -> frozenset[int]:
        """All replicas that may be in sync: one of them is elected next."""
        return self._in_sync.maximal

    @property
    def deposed(self) -> bool:
        """Whether another leader may exist: records written here then count only if there is none."""
        return self._moved or (self._replica.unheard and any(map(self._is_cut_off, self._followers())))

    def _refuse_waiters(self) -> None:
        for waiter in self._waiters.take():
            self._replica.effects.append(Release(waiter, ReplicaRefusal.NOT_LEADER))

    def appended(self, records: int) -> None:
        """Note that a number of records has been appended in this epoch."""
        replica = self._replica
        replica.history.append(replica.leader_epoch, replica.node_id, records)
        self._progress.appended(replica.history.end_offset, replica.now_ms)
        self._wake()

    def wait(self, end_offset: int, waiter: object) -> None:
        """Release `waiter` once all records below `end_offset`, which are written, are committed."""
        self._waiters.add(end_offset, waiter)
        self._release()

    def synced(self) -> None:
        """Commit, since more of the log is on disk."""
        replica = self._replica
        self._progress.take_all((replica.reach,), replica.history.end_offset, replica.now_ms)
        self._commit()
        self._wake()

    def state_moved(self) -> None:
        """Note a change of the local state: a leader counts itself only while this state lacks no record."""
        self.synced()
        self._hand_over()

    @property
    def lowest_checkpoint(self) -> int:
        """The lowest older checkpoint of all in-sync replicas; records below it are not needed. -1: unknown."""
        replica, lowest = self._replica, self._replica.checkpoint_offset
        for node in self._in_sync.maximal:
            if node != replica.node_id:
                lowest = min(lowest, self._progress.checkpoint(node))
        return lowest

    @property
    def highest_checkpoint(self) -> int:
        """The highest older checkpoint that an in-sync replica has reported."""
        others = [self._progress.checkpoint(node) for node in self._in_sync.maximal if node != self._replica.node_id]
        return max(self._replica.checkpoint_offset, *others, -1)

    # -- the high watermark -------------------------------------------------------------------------

    def _has_enough(self) -> bool:
        return len(self._in_sync.committed) >= self._replica.state.needed(self._replica.config)

    def _commit(self) -> None:
        """Commit records on the disks of all replicas that may be in sync, if enough are known to be in sync."""
        if self._has_enough() and self._replica.commit(
            min(self._progress.covered(node) for node in self._in_sync.maximal)
        ):
            self._release()
            self._wake()

    def _release(self) -> None:
        for waiter in self._waiters.reached(self._replica.high_watermark):
            self._replica.effects.append(Release(waiter, None))

    # -- the in-sync set ----------------------------------------------------------------------------

    def answered(self, answer: AlterPartitionAnswer) -> None:
        """Handle the controller's refusal of a proposal."""
        self._in_sync.refused(answer.asked, self._replica.now_ms + self._replica.timeouts.retry_ms)

    def _review(self) -> None:
        """Propose another set if replicas lag or have caught up; repeat unanswered proposals.

        A refused proposal is withdrawn first; otherwise the high watermark would wait for a replica that is not
        admitted.
        """
        replica, now_ms = self._replica, self._replica.now_ms
        if now_ms < self._in_sync.due_ms:
            return
        if not (self.awaits_others or self._in_sync.is_open or self._slowness.finds_any):
            return  # the usual case
        due_ms = now_ms + replica.timeouts.retry_ms
        if self._in_sync.in_flight is not None:
            self._in_sync.due_ms = due_ms
            replica.effects.append(ProposeInSyncSet(self._in_sync.in_flight))
            return
        wanted = self._in_sync.committed
        if not self._in_sync.is_open:
            lagging = self._lagging()
            wanted = wanted.difference(lagging) if lagging else wanted
            slow = self._slow(wanted)
            wanted = wanted.difference(slow) if slow else wanted
            ready = self._ready()
            wanted = wanted.union(ready) if ready else wanted
        # The controller needs the registration of each replica. It is unknown for replicas without a report in this
        # epoch.
        if not self._progress.knows_all(wanted):
            self._in_sync.due_ms = due_ms
        elif wanted != self._in_sync.committed or self._in_sync.is_open:
            members = [InSyncReplica(node, self._progress.broker_epoch(node)) for node in sorted(wanted)]
            me = InSyncReplica(replica.node_id, replica.broker_epoch)
            replica.effects.append(ProposeInSyncSet(self._in_sync.propose(me, replica.leader_epoch, members, due_ms)))

    def _followers(self) -> list[int]:
        return sorted(self._in_sync.committed - {self._replica.node_id})

    def _lags(self, node_id: int) -> bool:
        replica = self._replica
        if self._progress.lacks(node_id):
            return True
        if self._progress.covered(node_id) >= replica.history.end_offset:
            return False
        if self._is_cut_off(node_id) and replica.now_ms >= self._gone_ms(node_id):
            return True
        return self._progress.lags(node_id, replica.history.end_offset, replica.now_ms, replica.config.lag_time_max_ms)

    def _is_cut_off(self, node_id: int) -> bool:
        """Whether the replica fetches from this node and has no connection to it."""
        place = self._replica.places.get(node_id)
        return node_id in self._replica.gone and place is not None and place.upstream == self._replica.node_id

    def _gone_ms(self, node_id: int) -> int:
        """The time at which a disconnected replica counts as gone, unless it connects again."""
        return self._replica.gone[node_id] + self._replica.timeouts.gone_ms

    def _lagging(self) -> list[int]:
        replica = self._replica
        behind = self._progress.behind(self._in_sync.committed, replica.history.end_offset)
        return [node for node in behind if node != replica.node_id and self._lags(node)]

    def _slow(self, members: frozenset[int]) -> tuple[int, ...]:
        """Slow replicas that are not needed."""
        if len(members) <= self._replica.state.needed(self._replica.config):
            return ()
        slow = self._slowness.eject(members - {self._replica.node_id})
        return () if slow is None else (slow,)

    def _measure(self) -> None:
        """Hand over the leadership at the end of a window if the leader itself is the slow replica."""
        replica = self._replica
        if not self._slowness.is_due(replica.now_ms):
            return
        is_over = self._slowness.close(self._progress.waiting_ms(replica.now_ms), replica.live, replica.now_ms)
        if is_over and self._slowness.is_slow(replica.node_id) and self._followers():
            replica.effects.append(TransferLeadership(replica.leader_epoch))

    def _successors(self) -> list[int]:
        """In-sync replicas that have reported in this epoch that they lack no record."""
        progress = self._progress
        return [node for node in self._followers() if progress.covered(node) >= 0 and not progress.lacks(node)]

    def _hand_over(self) -> None:
        """Ask for a leader that lacks nothing, if the state of this one lacks records that its log no longer has."""
        replica = self._replica
        if replica.is_whole or replica.now_ms < self._hand_over_ms:
            return
        successors = self._successors()
        if successors:
            self._hand_over_ms = replica.now_ms + replica.timeouts.retry_ms
            replica.effects.append(TransferLeadership(replica.leader_epoch, successors[0]))

    def _hand_over_due_ms(self) -> int | None:
        """The time of the next request for another leader."""
        waits = not self._replica.is_whole and self._hand_over_ms > self._replica.now_ms
        return self._hand_over_ms if waits else None

    def _ready(self) -> list[int]:
        """The replicas that may join."""
        joining = self._joining()
        if not joining:
            return joining
        bar = self._bar()
        progress, joins = self._progress, self._replica.joins
        return [
            node
            for node in joining
            if progress.covered(node) >= bar and not progress.lacks(node) and progress.checkpoint(node) in joins
        ]

    def _bar(self) -> int:
        """The offset that a joining replica must have on disk; nothing above it was committed or shown."""
        return max(self._replica.high_watermark, self._first, self._lent)

    def _joining(self) -> list[int]:
        """Live replicas that are not in sync."""
        maximal = self._in_sync.maximal
        outside = [node for node in self._replica.state.replicas if node not in maximal]
        return [
            node
            for node in outside
            if node in self._replica.live and self._progress.heard(node) and self._slowness.may_join(node)
        ]

    def _review_ms(self) -> int | None:
        """The time of the next proposal, or of its repetition, without other events."""
        if self._in_sync.in_flight is not None or self._in_sync.due_ms > self._replica.now_ms:
            return self._in_sync.due_ms
        end_offset, own_id = self._replica.history.end_offset, self._replica.node_id
        behind = [node for node in self._progress.behind(self._in_sync.committed, end_offset) if node != own_id]
        if not behind:
            return None
        lag_time_max_ms = self._replica.config.lag_time_max_ms
        times = [self._progress.lags_at_ms(node, lag_time_max_ms) for node in behind]
        times += [self._gone_ms(node) for node in behind if self._is_cut_off(node)]
        return min(times)

    # -- fetches ------------------------------------------------------------------------------------

    def fetch(self, fetch: ReplicaFetch) -> None:
        """Respond to a fetch of this epoch; its report counts if its log is a prefix of this log."""
        replica = self._replica
        if self._progress.is_stale(fetch.node_id, fetch.broker_epoch):
            replica.refuse(fetch, ReplicaRefusal.NOT_LEADER)
            return
        if replica.history.holds(fetch.end):
            self._hear(fetch)
        if fetch.reports:
            return
        if not fetch.confirmed or self._has_news(fetch):
            self._parked.drop(fetch.node_id)
            self._answer(fetch)
        else:
            self._parked.park(fetch, replica.now_ms + min(fetch.wait_ms, replica.timeouts.idle_wait_ms))

    def _hear(self, fetch: ReplicaFetch) -> None:
        replica = self._replica
        news = self._progress.take_all(replica.others(fetch.reaches), replica.history.end_offset, replica.now_ms)
        if fetch.checkpoints:
            self._progress.take_checkpoints(fetch.checkpoints)
        if news:
            self._commit()
            self._hand_over()
        if news or fetch.checkpoints:
            self._review()

    def answer_all(self) -> None:
        """Respond to waiting fetches, since values that responses carry have changed."""
        for fetch in self._parked.take(lambda _: True):
            self._answer(fetch)

    def _has_news(self, fetch: ReplicaFetch) -> bool:
        replica = self._replica
        if fetch.end != replica.history.end or fetch.high_watermark < replica.high_watermark:
            return True
        permit = self._permit()
        return permit is not None and permit.offset > fetch.permitted

    def _is_missed(self, fetch: ReplicaFetch) -> bool:
        """Whether the fetch reports on a replica that may be ready to join and must report again first."""
        outside = frozenset(self._replica.state.replicas) - self._in_sync.maximal
        missed = [node for node in outside if node in self._replica.live and not self._progress.heard(node)]
        return any(reach.node_id in missed for reach in fetch.reaches)

    def _permit(self) -> Permit | None:
        """The offset that the tail of a chain may show once all replicas before it have synced the records below.

        A replica that joins later must have these records first. So the offset does not rise while a replica that keeps
        up is not in sync.
        """
        replica = self._replica
        if replica.config.topology is not Topology.CHAIN or not self._has_enough():
            return None
        if all(map(self._lags, self._joining())):
            self._lent = max(self._lent, replica.reach.covered)
        return Permit(tuple(sorted(self._in_sync.maximal)), (replica.node_id,), self._lent)

    def _answer(self, fetch: ReplicaFetch) -> None:
        replica = self._replica
        history = replica.history
        if not history.knows(fetch.end):
            replica.refuse(fetch, ReplicaRefusal.OFFSET_OUT_OF_RANGE)
            return
        answer = ReplicaFetchAnswer(
            replica.node_id,
            replica.leader_epoch,
            fetch,
            None,
            replica.high_watermark,
            history.start_offset,
            self._permit(),
            history.parting(fetch.end),
            history.takeovers_after(fetch.end.leader_epoch),
        )
        if answer.diverging is not None:
            replica.send(fetch.node_id, answer)
        else:
            replica.effects.append(ServeReplicaFetch(fetch.node_id, answer))

    def _wake(self) -> None:
        for fetch in self._parked.take(self._has_news):
            self._answer(fetch)
