"""A follower: fetches from its upstream, truncates diverging records, serves its own followers. Pure.

Only the leader decides where histories diverge. A follower is *confirmed* once the leader has answered a fetch at the
end of its log in this epoch: from then on its log is a prefix of the leader's and grows only by the leader's records.
So a follower first asks the leader and then its upstream, and serves others only when it is confirmed. The offset that
it reports as synced is therefore valid for the whole epoch, whichever replica passes it on.
"""

from typing import Final

from duramen.base.leader_epochs import Takeover
from duramen.replication.effects import ServeReplicaFetch, Show
from duramen.replication.messages import (
    Permit,
    Reach,
    ReplicaBatch,
    ReplicaFetch,
    ReplicaFetchAnswer,
    ReplicaRefusal,
    ReplicationCheckpoint,
)
from duramen.replication.parked_fetches import ParkedReplicaFetches
from duramen.replication.progress import FollowerProgress
from duramen.replication.replica import ReplicaCore

__all__ = ["PartitionFollowerRole"]

_LONGER: Final = 16


class PartitionFollowerRole:
    """A follower in the epoch of its state."""

    def __init__(self, replica: ReplicaCore, leader_id: int) -> None:
        self._replica = replica
        self._leader_id = leader_id
        self._progress = FollowerProgress(replica.now_ms)
        self._parked = ParkedReplicaFetches()
        self._confirmed = False
        self._permit: Permit | None = None
        self._shown = 0
        self._number = 0
        self._waiting: ReplicaFetch | None = None
        self._reported: tuple[Reach, ...] = ()
        self._told_checkpoints: tuple[ReplicationCheckpoint, ...] = ()
        self._upstream = leader_id
        self._wait_ms = replica.timeouts.wait_ms
        self._backoff_ms = replica.timeouts.backoff_ms
        self._silence_ms = replica.timeouts.silence_ms
        self._retry_ms = replica.now_ms

    def open(self) -> None:
        """Send the first fetch."""
        self._fetch()

    def close(self) -> None:
        """Complete the waiting requests: the replica no longer follows this leader."""
        for fetch in self._parked.take(lambda _: True):
            self._replica.refuse(fetch, ReplicaRefusal.NOT_LEADER)

    def changed(self) -> None:
        """Apply the controller's change of the assignment or the in-sync set."""
        self._progress.forget(self._replica.state.nodes)
        self.placed()

    def reachable(self, node_id: int) -> None:
        """Fetch again: there is a new connection to a node, and messages in transit may be lost."""
        if node_id == self._upstream:
            self._wait_ms = self._replica.timeouts.wait_ms
            self._silence_ms = self._replica.timeouts.silence_ms
            self._fetch()

    def lost(self, message: ReplicaFetch | ReplicaFetchAnswer) -> None:
        """Retry soon, since a message or its response was lost."""
        again_ms = self._replica.now_ms + self._replica.timeouts.retry_ms
        if isinstance(message, ReplicaFetch):
            self._wait_ms = self._replica.timeouts.wait_ms
            self._retry_ms = min(self._retry_ms, again_ms)
        elif message.asked.leader_epoch == self._replica.leader_epoch:
            self._parked.park(message.asked, again_ms)

    @property
    def upstream(self) -> int:
        """The node from which it fetches."""
        return self._upstream

    @property
    def shown_offset(self) -> int:
        """Records below this offset may be shown."""
        return max(self._shown, self._replica.high_watermark)

    @property
    def deadline_ms(self) -> int:
        """The time at which `tick` has something to do."""
        parked_ms = self._parked.deadline_ms
        return self._retry_ms if parked_ms is None else min(self._retry_ms, parked_ms)

    def tick(self) -> None:
        """Process the passed time."""
        replica = self._replica
        for fetch in self._parked.take_due(replica.now_ms):
            if self._confirmed:
                self._answer(fetch)
            else:
                replica.refuse(fetch, ReplicaRefusal.NOT_LEADER)
        if replica.now_ms >= self._retry_ms:
            if self._waiting is not None:
                # Retries at the same interval would let a busy node respond to each fetch twice.
                self._silence_ms = 2 * min(self._silence_ms, replica.timeouts.idle_wait_ms)
            self._fetch()

    def synced(self) -> None:
        """Report the newly synced records to the upstream; show them or pass them on to followers if possible."""
        self._report()
        self._show()
        self._wake()

    def state_moved(self) -> None:
        """Report the progress of the local state or of its checkpoint to the upstream."""
        self._report()

    # -- upwards ------------------------------------------------------------------------------------

    def take(self, answer: ReplicaFetchAnswer) -> None:
        """A response to a fetch of this epoch; it applies at the offset of the fetch.

        Within an epoch the records after an end never change, so responses may be late and duplicated. The high
        watermark and the permit refer to the leader's log. This log is a prefix of it once the follower is confirmed.
        """
        latest = self._waiting is not None and answer.asked.number == self._waiting.number
        here = answer.asked.end == self._replica.history.end
        if answer.refusal is not None:
            self._refused(answer, latest=latest, here=here)
            return
        self._backoff_ms = self._replica.timeouts.backoff_ms
        if latest:
            self._silence_ms = self._replica.timeouts.silence_ms
        if answer.diverging is not None:
            if here and not self._confirmed:
                self._replica.cut(self._replica.history.meeting(answer.diverging))
                self._fetch()
            return
        if answer.batches or answer.high_watermark > self._replica.high_watermark:
            self._wait_ms = self._replica.timeouts.wait_ms
        elif latest:
            self._wait_ms = min(_LONGER * self._wait_ms, self._replica.timeouts.idle_wait_ms)
        if here:
            self._confirmed = self._confirmed or answer.node_id == self._leader_id
            self._take_batches(answer)
        turned = self._turned()
        if self._confirmed:
            self._apply_answer(answer)
        if turned or latest or (here and answer.batches):
            self._fetch()

    def _refused(self, answer: ReplicaFetchAnswer, *, latest: bool, here: bool) -> None:
        """Ask again later: by then the controller may have sent an update.

        If the upstream log starts after this one, or the divergence is no longer known, this log is restarted.
        """
        replica = self._replica
        if answer.refusal is ReplicaRefusal.OFFSET_OUT_OF_RANGE and answer.leader_epoch == replica.leader_epoch:
            if here:
                replica.restart(answer.start_offset)
                self._fetch()
        elif latest:
            self._waiting = None
            self._retry_ms = replica.now_ms + self._backoff_ms
            self._backoff_ms = min(2 * self._backoff_ms, replica.timeouts.wait_ms)

    def _take_batches(self, answer: ReplicaFetchAnswer) -> None:
        leaders = {takeover.epoch: takeover.leader_id for takeover in answer.takeovers}
        leaders[answer.leader_epoch] = self._leader_id
        for batch in answer.batches:
            if not self._follows(batch):
                return
            self._replica.append(batch, leaders.get(batch.epoch, -1))

    def _follows(self, batch: ReplicaBatch) -> bool:
        end = self._replica.history.end
        return batch.first_offset == end.offset and end.leader_epoch <= batch.epoch <= self._replica.leader_epoch

    def _apply_answer(self, answer: ReplicaFetchAnswer) -> None:
        replica = self._replica
        replica.learn(answer.high_watermark, answer.start_offset)
        if answer.permit is not None and answer.node_id == self._upstream:
            self._permit = answer.permit
        self._show()
        self._wake()

    def placed(self) -> None:
        """Ask the nearest live upstream in the line, once this replica is confirmed: the live nodes have changed."""
        if self._turned():
            self._fetch()

    def _turned(self) -> bool:
        place = self._replica.places.get(self._replica.node_id)
        upstream = self._leader_id if place is None or place.upstream is None else place.upstream
        if not self._confirmed or upstream == self._upstream:
            return False
        self._upstream = upstream
        self._permit = None
        return True

    def _fetch(self) -> None:
        replica = self._replica
        self._retry_ms = replica.now_ms + self._wait_ms + self._silence_ms
        self._waiting = self._next_fetch()
        replica.send(self._upstream, self._waiting)

    def _report(self) -> None:
        """Report the synced offset of this replica and its followers, beside the waiting fetch."""
        news = self._reaches() != self._reported or self._checkpoints() != self._told_checkpoints
        if self._confirmed and news:
            self._replica.send(self._upstream, self._next_fetch(reports=True))

    def _next_fetch(self, *, reports: bool = False) -> ReplicaFetch:
        replica = self._replica
        self._number += 1
        self._reported = self._reaches()
        self._told_checkpoints = self._checkpoints()
        permitted = -1 if self._permit is None else self._permit.offset
        return ReplicaFetch(
            replica.node_id,
            replica.broker_epoch,
            replica.leader_epoch,
            replica.history.end,
            self._reported,
            replica.high_watermark,
            permitted,
            self._number,
            self._confirmed,
            reports,
            self._wait_ms,
            self._told_checkpoints,
        )

    def _reaches(self) -> tuple[Reach, ...]:
        return (self._replica.reach, *self._progress.reaches())

    def _checkpoints(self) -> tuple[ReplicationCheckpoint, ...]:
        own = self._replica.checkpoints
        return (*own, *self._progress.checkpoints()) if own else ()

    # -- shown here ---------------------------------------------------------------------------------

    def _show(self) -> None:
        """Show records before the high watermark reaches them, at the tail of a chain: all disks have them."""
        permit, me = self._permit, self._replica.node_id
        if permit is not None and {*permit.nodes, me} >= set(permit.members):
            offset = min(permit.offset, self._replica.reach.covered)
            if offset > self.shown_offset:
                self._shown = offset
                self._replica.effects.append(Show(offset))

    # -- downwards ----------------------------------------------------------------------------------

    def fetch(self, fetch: ReplicaFetch) -> None:
        """Respond to a fetch of this epoch by a confirmed follower; if the follower is ahead, its fetch waits."""
        replica = self._replica
        if not fetch.confirmed:
            replica.refuse(fetch, ReplicaRefusal.NOT_LEADER)
            return
        if self._confirmed:
            reaches = replica.others(fetch.reaches)
            news = self._progress.take_all(reaches, replica.history.end_offset, replica.now_ms)
            if fetch.checkpoints:
                self._progress.take_checkpoints(fetch.checkpoints)
            if news or fetch.checkpoints:
                self._report()
        if fetch.reports:
            return
        if self._confirmed and self._has_news(fetch):
            self._parked.drop(fetch.node_id)
            self._answer(fetch)
        else:
            self._parked.park(fetch, replica.now_ms + min(fetch.wait_ms, replica.timeouts.idle_wait_ms))

    def answer_all(self) -> None:
        """Respond to waiting fetches, since values that responses carry have changed."""
        if self._confirmed:
            for fetch in self._parked.take(lambda _: True):
                self._answer(fetch)

    def _has_news(self, fetch: ReplicaFetch) -> bool:
        replica = self._replica
        if fetch.end.offset < replica.history.end_offset or fetch.high_watermark < replica.high_watermark:
            return True
        permit = self._permit_below()
        return permit is not None and permit.offset > fetch.permitted

    def _permit_below(self) -> Permit | None:
        permit, replica = self._permit, self._replica
        if permit is None:
            return None
        nodes = (*permit.nodes, replica.node_id)
        return permit._replace(nodes=nodes, offset=min(permit.offset, replica.reach.covered))

    def _answer(self, fetch: ReplicaFetch) -> None:
        replica = self._replica
        if fetch.end.offset < replica.history.start_offset:
            replica.refuse(fetch, ReplicaRefusal.OFFSET_OUT_OF_RANGE)
            return
        answer = ReplicaFetchAnswer(
            replica.node_id,
            replica.leader_epoch,
            fetch,
            None,
            replica.high_watermark,
            replica.history.start_offset,
            self._permit_below(),
            takeovers=self._takeovers_after(fetch),
        )
        replica.effects.append(ServeReplicaFetch(fetch.node_id, answer))

    def _takeovers_after(self, fetch: ReplicaFetch) -> tuple[Takeover, ...]:
        return self._replica.history.takeovers_after(fetch.end.leader_epoch)

    def _wake(self) -> None:
        if self._confirmed:
            for fetch in self._parked.take(self._has_news):
                self._answer(fetch)
