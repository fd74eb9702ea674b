"""The replica of one partition: takes messages, time and synced offsets, and returns effects. Pure.

Each role has its own module, `leader` and `follower`; the controller assigns the role.
"""

from collections.abc import Collection

from duramen.base.ids import Position
from duramen.replication.effects import Effect, Settle
from duramen.replication.follower import PartitionFollowerRole
from duramen.replication.history import ReplicaHistory
from duramen.replication.leader import Behind, PartitionLeaderRole
from duramen.replication.messages import AlterPartitionAnswer, Message, ReplicaFetch, ReplicaFetchAnswer, ReplicaRefusal
from duramen.replication.parked_fetches import ParkedReplicaFetches
from duramen.replication.partition import PartitionConfig, ReplicatedPartition, Topology
from duramen.replication.replica import ANY_CHECKPOINT, CheckpointRange, ReplicaCore, ReplicaDiskState
from duramen.replication.replication_wait import ReplicationWaits
from duramen.replication.timeouts import TIMEOUTS, ReplicaTimeouts

__all__ = ["Behind", "ReplicaMachine"]


class ReplicaMachine:
    """The replica on a node. After any call, `take` returns the new effects.

    For streams with durability=os or memory, the caller reports written records as synced.
    """

    def __init__(
        self,
        node_id: int,
        broker_epoch: int,
        kept: ReplicaDiskState,
        *,
        config: PartitionConfig,
        now_ms: int,
        timeouts: ReplicaTimeouts = TIMEOUTS,
    ) -> None:
        self._replica = ReplicaCore(node_id, broker_epoch, kept, config, timeouts, now_ms)
        self._part: PartitionLeaderRole | PartitionFollowerRole | None = None
        self._reaching = ReplicationWaits()
        self._early: ParkedReplicaFetches | None = None  # fetches of later epochs; few replicas ever get one

    # -- state --------------------------------------------------------------------------------------

    @property
    def state(self) -> ReplicatedPartition:
        """The newest state from the controller."""
        return self._replica.state

    @property
    def leads(self) -> bool:
        """Whether the replica leads, as far as it knows."""
        return isinstance(self._part, PartitionLeaderRole)

    @property
    def led_epoch(self) -> int | None:
        """The epoch in which the replica leads, as far as it knows; None if it does not."""
        return self._replica.state.leader_epoch if isinstance(self._part, PartitionLeaderRole) else None

    @property
    def may_lead(self) -> frozenset[int]:
        """The nodes that may be elected while this replica leads, as far as it knows; empty if it does not lead."""
        return self._part.may_lead if isinstance(self._part, PartitionLeaderRole) else frozenset()

    @property
    def deposed(self) -> bool:
        """Whether the replica leads, as far as it knows, but may have been replaced; see `on_controller_session`."""
        return isinstance(self._part, PartitionLeaderRole) and self._part.deposed

    @property
    def history(self) -> ReplicaHistory:
        """The log, including pending writes; read-only for callers."""
        return self._replica.history

    @property
    def high_watermark(self) -> int:
        """The offset below which records are committed, as far as the replica knows."""
        return self._replica.high_watermark

    @property
    def durable_high_watermark(self) -> int:
        """The high watermark that may be stored for the next start; see `ReplicaDiskState`."""
        return min(self._replica.high_watermark, self._replica.history.synced_offset)

    @property
    def shown_offset(self) -> int:
        """The offset below which records may be read here."""
        return (
            self._part.shown_offset if isinstance(self._part, PartitionFollowerRole) else self._replica.high_watermark
        )

    @property
    def latest_offset(self) -> int | None:
        """The end for clients; None if it is unknown (OFFSET_NOT_AVAILABLE) or the replica does not lead."""
        return self._part.latest_offset() if isinstance(self._part, PartitionLeaderRole) else None

    def covered(self, node_id: int, broker_epoch: int) -> int:
        """The offset below which a leader knows that a replica has everything on disk; -1 if unknown.

        Reports before that registration do not count, because its disk may have changed.
        """
        return self._part.covered(node_id, broker_epoch) if isinstance(self._part, PartitionLeaderRole) else -1

    def behind(self) -> list[Behind]:
        """The followers that lack records, as far as this replica leads."""
        return self._part.behind() if isinstance(self._part, PartitionLeaderRole) else []

    @property
    def awaits_others(self) -> bool:
        """Whether the replica leads and connections matter; see `PartitionLeaderRole.awaits_others`."""
        return isinstance(self._part, PartitionLeaderRole) and self._part.awaits_others

    def reacts_to_live_nodes(self, live: Collection[int]) -> bool:
        """Whether a change to these live nodes matters: in a line it may give a replica another upstream."""
        if self._replica.config.topology is not Topology.FANOUT:
            return True
        return isinstance(self._part, PartitionLeaderRole) and self._part.lets_join(live)

    def reacts_to(self, state: ReplicatedPartition) -> bool:
        """Whether this state requires any action: a follower of the same leader continues unchanged."""
        if not isinstance(self._part, PartitionFollowerRole) or self._replica.config.topology is not Topology.FANOUT:
            return True
        return state.leader_epoch != self._replica.state.leader_epoch

    def follows(self, node_id: int) -> bool:
        """Whether the replica fetches from that node."""
        return isinstance(self._part, PartitionFollowerRole) and self._part.upstream == node_id

    @property
    def deadline_ms(self) -> int | None:
        """The time at which `tick` has something to do, unless another event comes first."""
        part_ms = None if self._part is None else self._part.deadline_ms
        if self._early is None and not self._reaching.anybody:
            return part_ms  # the usual case
        early_ms = None if self._early is None else self._early.deadline_ms
        times = (part_ms, early_ms, self._reaching.deadline_ms)
        return min([time_ms for time_ms in times if time_ms is not None], default=None)

    def take(self) -> list[Effect]:
        """The new effects, in order; see `effects`."""
        replica = self._replica
        if self._reaching.anybody:
            for waiter, outcome in self._reaching.settle(self.history, self.shown_offset, replica.now_ms):
                replica.effects.append(Settle(waiter, outcome))
        effects, replica.effects = replica.effects, []
        return effects

    # -- events -------------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> None:
        """Set the clock before an event without `tick`; due work waits for `tick`."""
        if now_ms > self._replica.now_ms:
            self._replica.now_ms = now_ms

    def tick(self, now_ms: int) -> None:
        """Advance the time to `now_ms`, from this node's own monotonic clock."""
        self.advance(now_ms)
        if self._early is not None:
            for fetch in self._early.take_due(self._replica.now_ms):
                self._replica.refuse(fetch, ReplicaRefusal.UNKNOWN_LEADER_EPOCH)
        if self._part is not None:
            self._part.tick()

    def on_partition_state(self, state: ReplicatedPartition, live: Collection[int]) -> None:
        """Apply the state from the controller's log and the live nodes.

        Only states after this node's registration apply: a leader never continues in an epoch from before its start.
        Older states are ignored.
        """
        replica = self._replica
        known = replica.state
        if state.partition_epoch < known.partition_epoch:
            return
        replica.set_state(state, live)
        if state.leader_epoch > known.leader_epoch:
            self._begin()
        elif self._part is not None and state.partition_epoch > known.partition_epoch:
            self._part.changed()
        elif self._part is not None:
            self._part.placed()

    def on_live_nodes(self, live: Collection[int]) -> None:
        """Set the live nodes. Without a line they do not affect a follower; in a line they may."""
        replica = self._replica
        if replica.config.topology is not Topology.FANOUT:
            replica.set_state(replica.state, live)
            if self._part is not None:
                self._part.placed()
            return
        replica.live = live
        if isinstance(self._part, PartitionLeaderRole) and self._part.lets_join(live):
            self._part.placed()

    def configure(self, config: PartitionConfig) -> None:
        """Apply new configs of the stream."""
        replica = self._replica
        if config != replica.config:
            replica.config = config
            replica.set_state(replica.state, replica.live)
            if self._part is not None:
                self._part.changed()

    def reachable(self, node_id: int) -> None:
        """Note a new connection to a node."""
        self._replica.gone.pop(node_id, None)
        if isinstance(self._part, PartitionFollowerRole):
            self._part.reachable(node_id)

    def unreachable(self, node_id: int, since_ms: int | None = None) -> None:
        """Note that a node has no connection since then: if none opens soon, a leader stops waiting for the node."""
        self._replica.gone.setdefault(node_id, self._replica.now_ms if since_ms is None else since_ms)
        if isinstance(self._part, PartitionLeaderRole):
            self._part.cut_off()

    def on_controller_session(self, *, alive: bool) -> None:
        """Set whether this node's session with the controller continues, as far as it is known; initially true.

        A leader that has lost its session and followers may have been replaced: then no request with acks=all waits.
        """
        self._replica.unheard = not alive
        if isinstance(self._part, PartitionLeaderRole):
            self._part.cut_off()

    def moved(self, leader_epoch: int) -> None:
        """Note that the controller has named another leader than that of this epoch."""
        if isinstance(self._part, PartitionLeaderRole) and self._replica.leader_epoch == leader_epoch:
            self._part.moved()

    def refusal(self) -> ReplicaRefusal | None:
        """The reason to refuse appends under acks=all; the caller asks before it writes the batch."""
        return self._part.refusal() if isinstance(self._part, PartitionLeaderRole) else ReplicaRefusal.NOT_LEADER

    def appended(self, records: int, waiter: object = None) -> Position:
        """Note that a leader's log got this number of records at the last set time; returns its new end.

        A `waiter` is released when they are committed. Raises ValueError if the replica does not lead.
        """
        leading = self._leading()
        leading.appended(records)
        if waiter is not None:
            leading.wait(self.history.end_offset, waiter)
        return self.history.end

    def wait(self, offset: int, waiter: object) -> None:
        """Release `waiter` once the record at `offset`, which is written, is committed.

        Raises ValueError if the replica does not lead.
        """
        self._leading().wait(offset + 1, waiter)

    def synced(self, end: Position) -> None:
        """Note that the log up to `end` is on disk; ignored if `end` is no longer part of the log."""
        if self._replica.history.synced(end) and self._part is not None:
            self._part.synced()

    def wait_replicated(self, record: Position, waiter: object, deadline_ms: int) -> None:
        """Tell `waiter` once this replica has the record of that epoch at that offset, or has truncated it."""
        self._reaching.add(record, waiter, deadline_ms)

    def trimmed(self, start_offset: int) -> None:
        """Note that records below `start_offset` were deleted. Raises ValueError if they are not committed."""
        if start_offset > self._replica.high_watermark:
            raise ValueError(f"offset {start_offset} is not committed: no log may begin there")
        self.history.start_at(max(start_offset, self.history.start_offset))

    def answer_all(self) -> None:
        """Respond to waiting fetches at once, since values that responses carry have changed."""
        if self._part is not None:
            self._part.answer_all()

    def state_moved(
        self, applied_offset: int | None, checkpoint_offset: int, joins: CheckpointRange = ANY_CHECKPOINT
    ) -> None:
        """Note that the local state covers records below `applied_offset`, and its older checkpoint the other offset.

        The replica's report about its disk counts only while its log starts at or before the end of the state. None:
        the replica keeps no state any more. A leader admits only replicas that have reported a checkpoint in `joins`.
        """
        replica = self._replica
        replica.joins = joins
        if (applied_offset, checkpoint_offset) == (replica.applied_offset, replica.checkpoint_offset):
            return
        was_whole, before = replica.is_whole, replica.checkpoint_offset
        replica.applied_offset, replica.checkpoint_offset = applied_offset, checkpoint_offset
        if self._part is not None and (replica.is_whole != was_whole or before != checkpoint_offset):
            self._part.state_moved()

    @property
    def lowest_checkpoint(self) -> int:
        """See `PartitionLeaderRole.lowest_checkpoint`; -1 if the replica does not lead."""
        return self._part.lowest_checkpoint if isinstance(self._part, PartitionLeaderRole) else -1

    @property
    def highest_checkpoint(self) -> int:
        """See `PartitionLeaderRole.highest_checkpoint`; -1 if the replica does not lead."""
        return self._part.highest_checkpoint if isinstance(self._part, PartitionLeaderRole) else -1

    def lost(self, message: ReplicaFetch | ReplicaFetchAnswer) -> None:
        """Note that a message of this replica was not sent, or the response to its fetch was unreadable."""
        if self._part is not None:
            self._part.lost(message)

    def receive(self, message: Message) -> None:
        """Handle a message for this replica. Raises LogDamaged if the leader lacks committed records."""
        match message:
            case ReplicaFetch():
                self._fetch(message)
            case ReplicaFetchAnswer():
                if isinstance(self._part, PartitionFollowerRole) and self._is_answer(message):
                    self._part.take(message)
            case AlterPartitionAnswer():
                self._altered(message)

    # -- steps --------------------------------------------------------------------------------------

    def _leading(self) -> PartitionLeaderRole:
        if isinstance(self._part, PartitionLeaderRole):
            return self._part
        raise ValueError(f"replica {self._replica.node_id} orders records in an epoch that it does not lead")

    def _begin(self) -> None:
        """Enter the role of another leader epoch."""
        replica = self._replica
        if self._part is not None:
            self._part.close()
        leader_id = replica.state.leader_id
        if leader_id == replica.node_id:
            self._part = PartitionLeaderRole(replica)
        elif leader_id is not None and replica.state.followed_by(replica.node_id):
            self._part = PartitionFollowerRole(replica, leader_id)
        else:
            self._part = None
        if self._part is not None:
            self._part.open()
        if self._early is not None:
            early, self._early = self._early, None
            for fetch in early.take(lambda _: True):
                self._fetch(fetch)

    def _fetch(self, fetch: ReplicaFetch) -> None:
        refusal = self._epoch_refusal(fetch)
        if refusal is ReplicaRefusal.UNKNOWN_LEADER_EPOCH:
            self._resign()
            self._keep(fetch)
        elif refusal is not None:
            self._replica.refuse(fetch, refusal)
        elif self._part is not None:
            self._part.fetch(fetch)

    def _resign(self) -> None:
        """Lead no more, since another replica knows a later epoch."""
        if isinstance(self._part, PartitionLeaderRole):
            self._part.close()
            self._part = None

    def _keep(self, fetch: ReplicaFetch) -> None:
        """Park a fetch of a later epoch until this replica learns of that epoch from the controller."""
        if fetch.reports:
            return
        if self._early is None:
            self._early = ParkedReplicaFetches()
        self._early.park(fetch, self._replica.now_ms + self._replica.timeouts.wait_ms)

    def _epoch_refusal(self, fetch: ReplicaFetch) -> ReplicaRefusal | None:
        epoch = self._replica.leader_epoch
        if fetch.leader_epoch != epoch:
            return (
                ReplicaRefusal.FENCED_LEADER_EPOCH
                if fetch.leader_epoch < epoch
                else ReplicaRefusal.UNKNOWN_LEADER_EPOCH
            )
        return ReplicaRefusal.NOT_LEADER if self._part is None else None

    def _is_answer(self, answer: ReplicaFetchAnswer) -> bool:
        """Whether the response is to a fetch of this epoch; only a refusal may carry another epoch itself."""
        epoch = self._replica.leader_epoch
        return answer.asked.leader_epoch == epoch and (answer.refusal is not None or answer.leader_epoch == epoch)

    def _altered(self, answer: AlterPartitionAnswer) -> None:
        if answer.state is not None and answer.state.partition_epoch > self._replica.state.partition_epoch:
            self.on_partition_state(answer.state, self._replica.live)
        elif isinstance(self._part, PartitionLeaderRole) and answer.refusal is not None:
            self._part.answered(answer)
