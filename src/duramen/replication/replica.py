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
    """What a replica finds of its log, all of it on disk: recovery syncs what it keeps.

    The high watermark is no higher than what was on disk when it was noted (`Machine.durable_high_watermark`): a cut
    that was not synced may bring back another history above that.
    """

    takeovers: Iterable[tuple[int, int, int]] = ()
    start_offset: int = 0
    end_offset: int = 0
    high_watermark: int = 0


class CheckpointRange(NamedTuple):
    """A replica that joins has reported a checkpoint from `least` to `most`; None: or any newer one."""

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
        self.gone: dict[int, int] = {}  # nodes to which there is no connection, and since when
        self.unheard = False
        self.applied_offset: int | None = None  # how far the state beside the log is; None where none is kept
        self.checkpoint_offset = -1
        self.joins = ANY_CHECKPOINT
        self.effects: list[Effect] = []

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch that it was told of."""
        return self.state.leader_epoch

    def told(self, state: ReplicatedPartition, live: Collection[int]) -> None:
        """The controller says so."""
        self.state = state
        self.live = live
        self.places = places(state, self.config.topology, live)

    @property
    def is_whole(self) -> bool:
        """Whether all that is committed is here: what the log has no more is in the state beside it."""
        return self.applied_offset is None or self.applied_offset >= self.history.start_offset

    @property
    def reach(self) -> Reach:
        """What it says of its own disk: nothing while it lacks what its log has no more."""
        return Reach(self.node_id, self.broker_epoch, self.history.synced_offset if self.is_whole else -1)

    @property
    def checkpoints(self) -> tuple[ReplicationCheckpoint, ...]:
        """What it says of its own checkpoints; nothing where no state is kept beside the log."""
        if self.applied_offset is None:
            return ()
        return (ReplicationCheckpoint(self.node_id, self.broker_epoch, self.checkpoint_offset),)

    def others(self, reaches: Iterable[Reach]) -> Iterator[Reach]:
        """What is said of other replicas of this partition."""
        return (reach for reach in reaches if reach.node_id != self.node_id and reach.node_id in self.state.nodes)

    # -- what is to be done -------------------------------------------------------------------------

    def send(self, node_id: int, message: ReplicaFetch | ReplicaFetchAnswer) -> None:
        """Send a message."""
        self.effects.append(SendReplicaMessage(node_id, message))

    def refuse(self, fetch: ReplicaFetch, refusal: ReplicaRefusal) -> None:
        """Answer a fetch with why not, unless it expects nothing."""
        if not fetch.reports:
            start_offset = self.history.start_offset
            answer = ReplicaFetchAnswer(
                self.node_id, self.leader_epoch, fetch, refusal, self.high_watermark, start_offset=start_offset
            )
            self.send(fetch.node_id, answer)

    def append(self, batch: ReplicaBatch, leader_id: int) -> None:
        """Write a batch that the leader has to the end of the log."""
        self.history.append(batch.epoch, leader_id, batch.records)
        self.effects.append(AppendRecords(batch, leader_id))

    def cut(self, end_offset: int) -> None:
        """Let go of what is behind. Raises LogDamaged where that is committed."""
        self._check_uncommitted(end_offset, f"the leader's log diverges from it at {end_offset}")
        self.history.cut(end_offset)
        self.effects.append(TruncateRecords(end_offset))

    def restart(self, start_offset: int) -> None:
        """Begin anew at the leader's start. Raises LogDamaged where that would lose what is committed."""
        self._check_uncommitted(start_offset, f"the leader's log begins at {start_offset}")
        self.history.restart(start_offset, self.high_watermark)
        self.effects.append(Restart(start_offset))
        self.commit(start_offset)

    def learn(self, high_watermark: int, start_offset: int) -> None:
        """How far the log that this one is a part of is committed, and where it begins: this one begins no earlier."""
        committed = min(high_watermark, self.history.end_offset)
        if self.history.start_offset < start_offset <= max(committed, self.high_watermark):
            self.history.start_at(start_offset)
            self.effects.append(StartAt(start_offset))
        self.commit(committed)

    def commit(self, high_watermark: int) -> bool:
        """Raise the high watermark, if this is higher."""
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
