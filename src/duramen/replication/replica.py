"""The state of a replica in any role: log, high watermark, knowledge of the partition, pending effects. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from duramen.base.errors import LogDamaged
from duramen.replication.effects import (
    AdvanceHighWatermark,
    AppendRecords,
    Effect,
    Restart,
    SendReplicaMessage,
    StartAt,
    TruncateRecords,
)
from duramen.replication.history import ReplicaHistory
from duramen.replication.messages import (
    Reach,
    ReplicaBatch,
    ReplicaFetch,
    ReplicaFetchAnswer,
    ReplicaRefusal,
    ReplicationCheckpoint,
)
from duramen.replication.partition import PartitionConfig, ReplicatedPartition
from duramen.replication.timeouts import ReplicaTimeouts
from duramen.replication.topology import FetchUpstream, places

__all__ = ["ANY_CHECKPOINT", "CheckpointRange", "ReplicaCore", "ReplicaDiskState"]


class ReplicaDiskState(NamedTuple):
    """The disk state of a replica's log, all of it on disk: recovery syncs the part that it keeps.

    The high watermark is at most the synced end at the time when it was stored (`Machine.durable_high_watermark`). An
    unsynced truncation may bring back another history above it.
    """

    takeovers: Iterable[tuple[int, int, int]] = ()
    start_offset: int = 0
    end_offset: int = 0
    high_watermark: int = 0


class CheckpointRange(NamedTuple):
    """A joining replica must have reported a checkpoint from `least` to `most`; None: no upper limit."""

    least: int
    most: int | None = None

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and self.least <= offset and (self.most is None or offset <= self.most)


ANY_CHECKPOINT: Final = CheckpointRange(-1)


class ReplicaCore:
    """The replica of one partition on the node `node_id`, under the registration `broker_epoch`."""

    def __init__(
        self,
        node_id: int,
        broker_epoch: int,
        kept: ReplicaDiskState,
        config: PartitionConfig,
        timeouts: ReplicaTimeouts,
        now_ms: int,
    ) -> None:
        self.node_id = node_id
        self.broker_epoch = broker_epoch
        self.config = config
        self.timeouts = timeouts
        self.now_ms = now_ms
        self.history = ReplicaHistory(kept.takeovers, kept.start_offset, kept.end_offset)
        self.high_watermark = min(max(kept.high_watermark, kept.start_offset), kept.end_offset)
        self.state = ReplicatedPartition(None, -1, -1, (), frozenset())
        self.live: Collection[int] = ()
        self.places: Mapping[int, FetchUpstream] = {}
        self.gone: dict[int, int] = {}  # nodes without a connection, and since when
        self.unheard = False
        self.applied_offset: int | None = None  # the offset that the local state has reached; None without one
        self.checkpoint_offset = -1
        self.joins = ANY_CHECKPOINT
        self.effects: list[Effect] = []

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch from the controller."""
        return self.state.leader_epoch

    def set_state(self, state: ReplicatedPartition, live: Collection[int]) -> None:
        """Apply the controller's state."""
        self.state = state
        self.live = live
        self.places = places(state, self.config.topology, live)

    @property
    def is_whole(self) -> bool:
        """Whether all committed records are here: the local state covers the records that the log no longer has."""
        return self.applied_offset is None or self.applied_offset >= self.history.start_offset

    @property
    def reach(self) -> Reach:
        """The report on this replica's own disk: nothing while its state lacks records that its log no longer has."""
        return Reach(self.node_id, self.broker_epoch, self.history.synced_offset if self.is_whole else -1)

    @property
    def checkpoints(self) -> tuple[ReplicationCheckpoint, ...]:
        """The report on this replica's own checkpoints; empty without a state beside the log."""
        if self.applied_offset is None:
            return ()
        return (ReplicationCheckpoint(self.node_id, self.broker_epoch, self.checkpoint_offset),)

    def others(self, reaches: Iterable[Reach]) -> Iterator[Reach]:
        """The reaches of other replicas of this partition."""
        return (reach for reach in reaches if reach.node_id != self.node_id and reach.node_id in self.state.nodes)

    # -- effects ------------------------------------------------------------------------------------

    def send(self, node_id: int, message: ReplicaFetch | ReplicaFetchAnswer) -> None:
        """Send a message."""
        self.effects.append(SendReplicaMessage(node_id, message))

    def refuse(self, fetch: ReplicaFetch, refusal: ReplicaRefusal) -> None:
        """Refuse a fetch with a reason, unless it expects no response."""
        if not fetch.reports:
            start_offset = self.history.start_offset
            answer = ReplicaFetchAnswer(
                self.node_id, self.leader_epoch, fetch, refusal, self.high_watermark, start_offset=start_offset
            )
            self.send(fetch.node_id, answer)

    def append(self, batch: ReplicaBatch, leader_id: int) -> None:
        """Write a batch from the leader to the end of the log."""
        self.history.append(batch.epoch, leader_id, batch.records)
        self.effects.append(AppendRecords(batch, leader_id))

    def cut(self, end_offset: int) -> None:
        """Truncate the log at `end_offset`. Raises LogDamaged if this would remove committed records."""
        self._check_uncommitted(end_offset, f"the leader's log diverges from it at {end_offset}")
        self.history.cut(end_offset)
        self.effects.append(TruncateRecords(end_offset))

    def restart(self, start_offset: int) -> None:
        """Restart the log at the leader's start. Raises LogDamaged if this would remove committed records."""
        self._check_uncommitted(start_offset, f"the leader's log begins at {start_offset}")
        self.history.restart(start_offset, self.high_watermark)
        self.effects.append(Restart(start_offset))
        self.commit(start_offset)

    def learn(self, high_watermark: int, start_offset: int) -> None:
        """Learn the high watermark and start of the log that continues this one; this log starts no earlier."""
        committed = min(high_watermark, self.history.end_offset)
        if self.history.start_offset < start_offset <= max(committed, self.high_watermark):
            self.history.start_at(start_offset)
            self.effects.append(StartAt(start_offset))
        self.commit(committed)

    def commit(self, high_watermark: int) -> bool:
        """Raise the high watermark, if this one is higher."""
        if high_watermark <= self.high_watermark:
            return False
        self.high_watermark = high_watermark
        self.effects.append(AdvanceHighWatermark(high_watermark))
        return True

    def _check_uncommitted(self, offset: int, why: str) -> None:
        if offset < self.high_watermark:
            raise LogDamaged(
                f"replica {self.node_id} knows records to be committed up to offset {self.high_watermark}, and in epoch"
                f" {self.leader_epoch} {why}: a disk has lost synced records"
            )
