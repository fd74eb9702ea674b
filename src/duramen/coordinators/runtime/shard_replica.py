"""A coordinator's partition on this node: its state, its shard while the node leads it, the truncation of its log."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any

from duramen.base.deadlines import Alarm
from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    NotCoordinator,
    NotLeader,
    OutcomeUnknown,
    StateDamaged,
)
from duramen.base.ports import StateRows
from duramen.broker.local_state import LocalState
from duramen.broker.partition import Partition
from duramen.codec.batch import DecodedRecord
from duramen.coordinators.runtime.active import ActiveShard
from duramen.coordinators.runtime.applying import Applier, Done, Retry, ShardState
from duramen.coordinators.runtime.batches import CommittedBatch
from duramen.coordinators.runtime.cuts import LaterCuts
from duramen.coordinators.runtime.dependencies import RuntimeDependencies
from duramen.coordinators.runtime.loss import StateLoss
from duramen.coordinators.runtime.memory_state import MemoryState, NoRows
from duramen.coordinators.runtime.row_state import RowState
from duramen.coordinators.runtime.shard import BatchRowKind, CoordinatorShard, RowKind, ShardKind
from duramen.coordinators.runtime.transfer import Installer
from duramen.coordinators.runtime.unreplicated import UnreplicatedDependencies, UnreplicatedShard
from duramen.metadata.partitions import PartitionId
from duramen.storage.log.floors import stream_floors
from duramen.storage.log.log import Log
from duramen.storage.planning.floors import retention_multiple
from duramen.storage.scan import OnDamage

__all__ = ["ShardReplica", "comes_next", "cut_offset"]


class ShardReplica:
    """A partition of a kind, on this node."""

    def __init__(
        self, parts: RuntimeDependencies, kind: ShardKind[Any], partition: Partition, on_loaded: Callable[[], None],
        opening: Retry,
    ) -> None:  # fmt: skip
        self._parts = parts
        self._on_loaded = on_loaded
        self._opening = opening
        self._kind = kind
        self.partition = partition
        self.active: ActiveShard | None = None
        self._memory: MemoryState | None = None
        self._row_state: RowState | None = None
        self._applier: Applier | None = None
        self._installer: Installer | None = None
        self._loss = StateLoss(partition, parts.states, parts.report)
        self._alarm = Alarm(parts.deadlines, self._due)
        self._cuts = LaterCuts(parts.clock, Alarm(parts.deadlines, self.advanced))
        self._local: LocalState | None = None
        self._leader_epoch = -1
        if kind.rows is not None:
            self._row_state = RowState(
                parts.states, kind.rows, partition, lambda: self.active is not None, self._apply_to_memory,
                None if isinstance(kind.rows, RowKind) else partial(self._changed, kind.rows),
                self._lost,
            )  # fmt: skip
            self._applier = self._apply(self._row_state, None if kind.rows.is_cut else self._lost)
            if kind.rows.is_cut:
                self._local = partition.state = LocalState()
                self._local.replicated = self._applier.again
            parts.states.open()
            self.advanced()

    def _apply(self, state: ShardState, lost: OnDamage | None = None) -> Applier:
        parts = self._parts
        return Applier(parts.store, self.partition, state, parts.clock, parts.deadlines, self.advanced, lost)

    def _lost(self, first: int, last: int, error: DuramenError) -> None:
        which = f"record {first}" if first == last else f"records {first} to {last}"
        cost = self._kind.cost and f", {self._kind.cost}"
        self._parts.report(
            f"{which} in partition {self.partition.index} of {self._kind.stream} cannot be read{cost}: {error}"
        )  # fmt: skip

    def _apply_to_memory(self, found: Sequence[DecodedRecord]) -> None:
        """Records are in the rows: update the memory of a loaded shard."""
        if self.active is not None and self.active.loaded:
            for record in found:
                self.active.apply(record)

    def _changed(self, kind: BatchRowKind, keys: Collection[bytes]) -> None:
        active = self.active
        if active is not None:
            kind.changed(active.shard, keys)
            if active.loaded:
                self._set_alarm(active)

    @property
    def place(self) -> PartitionId:
        return self.partition.place

    @property
    def rows(self) -> StateRows:
        """The rows of the state; a state in memory has none."""
        return self._row_state or NoRows()

    # -- leading ------------------------------------------------------------------------------------

    def lead(self, leader_epoch: int) -> None:
        self._leader_epoch = leader_epoch
        shard = self._kind.make(self.partition.index)
        if isinstance(self._kind.rows, BatchRowKind):
            self._kind.rows.led(shard, self.partition, self.rows)
        self.active = self._activate(shard)
        self.active.own, self.active.unloaded = self.committed, self._unloaded
        if self._row_state is None:
            self._memory = MemoryState(self.active, self.partition.log)
            self._applier = self._apply(self._memory, self._lost if self._kind.newest_counts else None)
        elif self._applier is not None:
            self._applier.again()  # the commit offset may be known only now
        self.advanced()

    def _activate(self, shard: CoordinatorShard[Any]) -> ActiveShard:
        parts, partition = self._parts, self.partition
        if self._kind.newest_counts and partition.role is None:
            unreplicated = UnreplicatedDependencies(parts.store, self.advanced, self._lead_again)
            return UnreplicatedShard(
                shard, partition, self.rows, parts.clock, parts.store.soon, self._take_steps, unreplicated
            )
        return ActiveShard(shard, partition, self.rows, parts.clock, parts.store.soon, self._take_steps)

    def _lead_again(self) -> None:
        if self.active is not None:
            self.unlead()
            self.lead(self._leader_epoch)

    @property
    def leader_epoch(self) -> int | None:
        """The epoch in which this node leads the partition; None: it does not."""
        return None if self.active is None else self._leader_epoch

    def _take_steps(self, steps: Iterator[None], done: Done) -> None:
        if self._applier is not None:
            self._applier.take_steps(steps, done)

    def _unloaded(self, error: DuramenError) -> None:
        if self._kind.unloaded is not None:
            self._kind.unloaded(self.partition.index, error)

    def reason_not_leading(self) -> str:
        """The reason why this node does not lead, as the end of a sentence."""
        try:
            self.partition.check_leads()
        except DuramenError as error:
            return f": {error}"
        return " yet"

    def unlead(self) -> None:
        active, self.active = self.active, None
        if active is not None:
            active.end(NotCoordinator("this node is no longer the coordinator"))
            if self._local is not None:
                self._local.end_leadership(NotLeader("this node is no longer the leader that received the records"))
        self._alarm.move(None)
        if self._row_state is None and self._applier is not None:
            self._applier.end()
            self._applier = self._memory = None

    def end(self) -> None:
        """The partition is deleted."""
        self.unlead()
        self._cuts.end()
        if self._local is not None:
            self._local.end_leadership(NotLeader("the stream was deleted"))
        if self._applier is not None:
            self._applier.end()
        self._end_installation()

    # -- the state ----------------------------------------------------------------------------------

    def restored(self) -> None:
        """The rows may have changed, or a restore starts."""
        if self._kind.rows is None:
            return
        if self.active is not None:
            self.active.suspend(CoordinatorLoading("the rows are being restored"))
            self._discard_misfit(self._kind.rows)
        self.advanced()
        if self._applier is not None:
            self._applier.again()

    def _discard_misfit(self, rows: RowKind | BatchRowKind) -> None:
        """Rebuild rows that do not fit the log, if the log has all the records for that.

        If other replicas may be the cause, this is not reported, and the log's history decides.
        """
        log, states = self.partition.log, self._parts.states
        alone = self._parts.membership.first_role is None
        if alone and not rows.is_cut and states.available and states.misfits(log):
            states.discard(log)
            if not states.is_foreign:
                name = f"partition {self.partition.index} of {self._kind.stream}"
                self._parts.report(f"the stored state of {name} does not fit its log: it is rebuilt")

    def advanced(self) -> None:
        """The state has advanced, the log was replaced, a checkpoint was made, or something failed."""
        log, local, active, states = self.partition.log, self._local, self.active, self._parts.states
        position = self.position()
        if self._row_state is not None and self._row_state.available:
            if position >= log.start_offset:
                self._end_installation()
                self._loss.end()
            else:
                self._install(log)
        if local is not None:
            # While rows cannot be used, no position is known; a log that starts at 0 has all records.
            local.applied_offset, local.floor_offset = (
                max(position, 0),
                states.checkpoints.floor(log, leads=active is not None),
            )
            local.moved()
            local.acknowledge()
            self._refuse_appends(local)
        if active is None or active is not self.active:
            return
        active.advanced(position if position >= log.start_offset else -1, self.failure())
        if active.loaded:
            if isinstance(active, UnreplicatedShard) and self._applier is not None:
                self._applier.end()  # records from here on are the shard's own
            self._cut(log)
            self._set_alarm(active)
        self._on_loaded()

    def position(self) -> int:
        """The first offset that is not applied to the state; -1 if the state cannot be used now."""
        log = self.partition.log
        if self._memory is not None:
            return self._memory.position(log)
        return self._row_state.position(log) if self._row_state is not None and self._row_state.available else -1

    @property
    def loaded(self) -> bool:
        """Whether it takes commands."""
        return self.active is not None and self.active.loaded

    def committed(self, base_offset: int, next_offset: int, batch: Callable[[], CommittedBatch]) -> None:
        """A batch of this node is committed: if it is the next one, it is applied without reading the log."""
        log = self.partition.log
        state = self._memory or (None if self._kind.rows is None or self._kind.rows.is_cut else self._row_state)
        idle = self._applier is not None and not self._applier.takes_steps
        if state is not None and idle and state.available and comes_next(state.position(log), base_offset):
            try:
                state.apply_at_once(log, [batch()], next_offset)
            except DuramenError as error:
                self._parts.report(f"partition {self.partition.index} of {self._kind.stream} is loaded again: {error}")
        self.advanced()

    def _refuse_appends(self, local: LocalState) -> None:
        local.problem, failure = self._loss.error, self.failure()
        if failure is not None:
            local.acknowledge(OutcomeUnknown(f"the log has the records, and the state lacks them: {failure}"))

    @property
    def loss(self) -> StateDamaged | None:
        """The error of commands and reads if the state is lost."""
        return self._loss.error

    def failure(self) -> DuramenError | None:
        """The reason why the state has not advanced for some time, or cannot be had."""
        if self._row_state is not None and (error := self._loss.error or self._opening.error) is not None:
            return error
        by = self._installer or self._applier
        return None if by is None else by.retry.error

    def _cut(self, log: Log) -> None:
        """Truncate the log below the checkpoints of all in-sync replicas.

        After a restart the state may have records that this leader does not know to be committed yet: others still
        fetch them.
        """
        if self._local is None or self._kind.rows is None:
            return
        rows, offset = self._kind.rows, cut_offset(self._local.lowest_checkpoint(), self._local.floor_offset)
        if isinstance(rows, BatchRowKind):
            times = partial(retention_multiple, stream_floors(log))
            offset = self._cuts.due(offset, rows.checkpoint_records, rows.keep_ms(self.partition), times)
        offset = min(offset, log.high_watermark)
        if offset - log.start_offset >= rows.checkpoint_records:
            self._parts.store.delete_before(log, offset, lambda _: None)

    def _install(self, log: Log) -> None:
        states = self._parts.states
        if self._installer is not None and self._installer.log is log:
            if (error := self._installer.failure) is not None:
                self._loss.found(error, alone=self._installer.alone)
            return
        self._end_installation()
        self._installer = Installer(
            self.place, log, states, self._parts.caller, self._parts.clock, self._parts.deadlines, self._sources,
            self._installed, self.advanced,
        )  # fmt: skip
        self._installer.begin()

    def _end_installation(self) -> None:
        installer, self._installer = self._installer, None
        if installer is not None:
            installer.end()

    def _installed(self) -> None:
        self._installer = None
        self._parts.states.sweep()
        self.restored()

    def _sources(self) -> Sequence[int]:
        own_id, state = self._parts.caller.node_id, self._parts.membership.partition(self.place)
        others = [node for node in state.replicas if node not in (own_id, state.leader)]
        first = [] if state.leader is None or state.leader == own_id else [state.leader]
        # Its own checkpoint may fit the log's history when its rows do not.
        return [*first, *others, own_id]

    # -- time ---------------------------------------------------------------------------------------

    def _set_alarm(self, active: ActiveShard) -> None:
        at_ms, clock = active.shard.next_ms(), self._parts.clock
        self._alarm.move(None if at_ms is None else clock.monotonic_ms() + max(0, at_ms - clock.wall_ms()))

    def _due(self) -> None:
        active = self.active
        if active is None or not active.loaded:
            return
        for command in active.shard.due(self._parts.clock.wall_ms()):
            active.submit(command, lambda _: None)
        self._set_alarm(active)


def comes_next(position: int, base_offset: int) -> bool:
    """Whether a batch of this node may be applied to a state without reading the log."""
    return position == base_offset


def cut_offset(lowest_checkpoint: int, own_floor: int) -> int:
    """The offset below which a leader may truncate.

    It is the lowest older checkpoint of all in-sync replicas, its own included.
    """
    return min(lowest_checkpoint, own_floor)
