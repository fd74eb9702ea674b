"""The runtime on a node: loads the shards of the partitions that it leads, takes commands, and truncates their logs."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from duramen.base.deadlines import Alarm, Deadlines
from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    NotCoordinator,
    NotLeader,
    OutcomeUnknown,
    RequestInvalid,
    StateDamaged,
    StorageFailed,
)
from duramen.base.ports import Clock, StateRows
from duramen.broker.local_state import LocalState
from duramen.broker.membership import NodeMembership
from duramen.broker.partition import Partition
from duramen.broker.streams import BrokerStreams, Stream
from duramen.codec.batch import DecodedRecord
from duramen.coordinators.runtime.active import ActiveShard, AnswerDone
from duramen.coordinators.runtime.applying import Applier, Done, Retry, ShardState
from duramen.coordinators.runtime.batches import CommittedBatch
from duramen.coordinators.runtime.cuts import LaterCuts
from duramen.coordinators.runtime.loss import StateLoss
from duramen.coordinators.runtime.memory_state import MemoryState, NoRows
from duramen.coordinators.runtime.row_state import RowState
from duramen.coordinators.runtime.rows import CheckpointPage, RowStates
from duramen.coordinators.runtime.shard import BatchRowKind, CoordinatorShard, RowKind, ShardKind
from duramen.coordinators.runtime.transfer import FETCH_ROWS, FetchRows, Installer, RowsPage, page_of
from duramen.coordinators.runtime.unreplicated import UnreplicatedKit, UnreplicatedShard
from duramen.metadata.partitions import PartitionId
from duramen.rpc.caller import Caller
from duramen.rpc.server import Done as Answered
from duramen.storage.log.floors import stream_floors
from duramen.storage.log.log import Log
from duramen.storage.planning.floors import retention_multiple
from duramen.storage.scan import OnDamage
from duramen.storage.store import Store

__all__ = ["Runtime", "RuntimeParts"]

T = TypeVar("T")

_READ_MS: Final = 10_000
"""The period for which a checkpoint is kept after its last read by another node."""
_READER_MS: Final = 3_000


class RuntimeParts(NamedTuple):
    """The dependencies of the runtime. `states` has the rows of all kinds."""

    membership: NodeMembership
    streams: BrokerStreams
    store: Store
    caller: Caller
    clock: Clock
    deadlines: Deadlines
    report: Callable[[str], None]
    states: RowStates


class _Replica:
    """A partition of a kind, on this node."""

    def __init__(
        self, kit: RuntimeParts, kind: ShardKind[Any], partition: Partition, tell_loaded: Callable[[], None],
        opening: Retry,
    ) -> None:  # fmt: skip
        self._kit = kit
        self._tell_loaded = tell_loaded
        self._opening = opening
        self._kind = kind
        self.partition = partition
        self.active: ActiveShard | None = None
        self._memory: MemoryState | None = None
        self._row_state: RowState | None = None
        self._applier: Applier | None = None
        self._installer: Installer | None = None
        self._loss = StateLoss(partition, kit.states, kit.report)
        self._alarm = Alarm(kit.deadlines, self._due)
        self._cuts = LaterCuts(kit.clock, Alarm(kit.deadlines, self.advanced))
        self._local: LocalState | None = None
        self._leader_epoch = -1
        if kind.rows is not None:
            self._row_state = RowState(
                kit.states, kind.rows, partition, lambda: self.active is not None, self._tell,
                None if isinstance(kind.rows, RowKind) else partial(self._changed, kind.rows),
                self._lost,
            )  # fmt: skip
            self._applier = self._apply(self._row_state, None if kind.rows.is_cut else self._lost)
            if kind.rows.is_cut:
                self._local = partition.state = LocalState()
                self._local.replicated = self._applier.again
            kit.states.open()
            self.advanced()

    def _apply(self, state: ShardState, lost: OnDamage | None = None) -> Applier:
        kit = self._kit
        return Applier(kit.store, self.partition, state, kit.clock, kit.deadlines, self.advanced, lost)

    def _lost(self, first: int, last: int, error: DuramenError) -> None:
        which = f"record {first}" if first == last else f"records {first} to {last}"
        cost = self._kind.cost and f", {self._kind.cost}"
        self._kit.report(
            f"{which} in partition {self.partition.index} of {self._kind.stream} cannot be read{cost}: {error}"
        )  # fmt: skip

    def _tell(self, found: Sequence[DecodedRecord]) -> None:
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
        kit, partition = self._kit, self.partition
        if self._kind.newest_counts and partition.role is None:
            parts = UnreplicatedKit(kit.store, self.advanced, self._lead_again)
            return UnreplicatedShard(shard, partition, self.rows, kit.clock, kit.store.soon, self._take_steps, parts)
        return ActiveShard(shard, partition, self.rows, kit.clock, kit.store.soon, self._take_steps)

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

    def why_elsewhere(self) -> str:
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
                self._local.acknowledge(NotLeader("this node is no longer the leader that received the records"))
        self._alarm.move(None)
        if self._row_state is None and self._applier is not None:
            self._applier.end()
            self._applier = self._memory = None

    def end(self) -> None:
        """The partition is deleted."""
        self.unlead()
        self._cuts.end()
        if self._local is not None:
            self._local.acknowledge(NotLeader("the stream was deleted"))
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
            self._look_for_misfit(self._kind.rows)
        self.advanced()
        if self._applier is not None:
            self._applier.again()

    def _look_for_misfit(self, rows: RowKind | BatchRowKind) -> None:
        """Rebuild rows that do not fit the log, if the log has all the records for that.

        If other replicas may be the cause, this is not reported, and the log's history decides.
        """
        log, states = self.partition.log, self._kit.states
        alone = self._kit.membership.first_role is None
        if alone and not rows.is_cut and states.available and states.misfits(log):
            states.discard(log)
            if not states.is_foreign:
                name = f"partition {self.partition.index} of {self._kind.stream}"
                self._kit.report(f"the stored state of {name} does not fit its log: it is rebuilt")

    def advanced(self) -> None:
        """The state has advanced, the log was replaced, a checkpoint was made, or something failed."""
        log, local, active, states = self.partition.log, self._local, self.active, self._kit.states
        position = self.position()
        if self._row_state is not None and self._row_state.available:
            if position >= log.start_offset:
                self._end_installation()
                self._loss.end()
            else:
                self._install(log)
        if local is not None:
            # While rows cannot be used, no position is known; a log that starts at 0 has all records.
            local.applied_offset, local.floor_offset = max(position, 0), states.floor(log, leads=active is not None)
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
        self._tell_loaded()

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
                self._kit.report(f"partition {self.partition.index} of {self._kind.stream} is loaded again: {error}")
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
            self._kit.store.delete_before(log, offset, lambda _: None)

    def _install(self, log: Log) -> None:
        states = self._kit.states
        if self._installer is not None and self._installer.log is log:
            if (error := self._installer.failure) is not None:
                self._loss.found(error, alone=self._installer.alone)
            return
        self._end_installation()
        self._installer = Installer(
            self.place, log, states, self._kit.caller, self._kit.clock, self._kit.deadlines, self._sources,
            self._installed, self.advanced,
        )  # fmt: skip
        self._installer.begin()

    def _end_installation(self) -> None:
        installer, self._installer = self._installer, None
        if installer is not None:
            installer.end()

    def _installed(self) -> None:
        self._installer = None
        self._kit.states.sweep()
        self.restored()

    def _sources(self) -> Sequence[int]:
        own_id, state = self._kit.caller.node_id, self._kit.membership.partition(self.place)
        others = [node for node in state.replicas if node not in (own_id, state.leader)]
        first = [] if state.leader is None or state.leader == own_id else [state.leader]
        # Its own checkpoint may fit the log's history when its rows do not.
        return [*first, *others, own_id]

    # -- time ---------------------------------------------------------------------------------------

    def _set_alarm(self, active: ActiveShard) -> None:
        at_ms, clock = active.shard.next_ms(), self._kit.clock
        self._alarm.move(None if at_ms is None else clock.monotonic_ms() + max(0, at_ms - clock.wall_ms()))

    def _due(self) -> None:
        active = self.active
        if active is None or not active.loaded:
            return
        for command in active.shard.due(self._kit.clock.wall_ms()):
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


class Runtime:
    """Shards of several kinds, created before the broker starts; `states` are opened for the first shard with rows."""

    def __init__(self, kit: RuntimeParts, kinds: Sequence[ShardKind[Any]]) -> None:
        self._kit = kit
        self._kinds = {kind.stream: kind for kind in kinds if not kind.stream_kind}
        self._stream_kinds = {kind.stream_kind: kind for kind in kinds if kind.stream_kind}
        self._replicas: dict[tuple[str, int], _Replica] = {}
        self._read_ms = -_READ_MS
        self._waiting: list[tuple[str, Done]] = []  # callbacks until all shards of a stream are loaded
        kit.caller.server.handle(FETCH_ROWS, self._serve)
        kit.streams.listeners.append(self._stream_changed)
        self._opening = Retry(kit.clock, kit.deadlines, kit.states.open)
        kit.states.not_opened = self._not_opened
        kit.states.restored = self._restored
        kit.states.kept = partial(self._each, _Replica.advanced)
        kit.states.is_read = lambda: kit.clock.monotonic_ms() - self._read_ms < _READ_MS

    # -- commands and queries -----------------------------------------------------------------------

    @property
    def states(self) -> RowStates:
        """The rows of all kinds."""
        return self._kit.states

    def add(self, kind: ShardKind[Any]) -> None:
        """Add a kind, before the broker starts."""
        self._kinds[kind.stream] = kind

    def submit(self, stream: str, partition: int, command: Any, done: AnswerDone, *, early: bool = False) -> None:
        """`done` gets the response once the command's records are committed and applied, or the error.

        NotCoordinator means: ask another node; CoordinatorLoading: retry here. Errors of the log are passed on. With
        `early`, if the partition has no replicas, `done` is called at once: all later appends come after the records.
        """
        try:
            active = self._active(stream, partition)
        except DuramenError as error:
            done(error)
        else:
            (active.begin if early else active.submit)(command, done)

    def soon(self, action: Callable[[], None]) -> None:
        """Run an action in the next turn of the event loop: all that was accepted in this one is appended by then."""
        self._kit.store.soon(action)

    def beside(self, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run a job off the event loop; it must not read the states."""
        self._kit.store.run(job, done)

    def leader_epoch(self, stream: str, partition: int) -> int | None:
        """The epoch in which this node leads a partition, as far as it knows; None: it does not."""
        replica = self._replicas.get((stream, partition))
        return None if replica is None else replica.leader_epoch

    def submit_while_loading(self, stream: str, partition: int, command: Any, done: AnswerDone) -> None:
        """Like `submit`, but also while the shard rebuilds its memory: for the shard itself."""
        try:
            active = self._active(stream, partition)
        except DuramenError as error:
            done(error)
        else:
            active.submit_while_loading(command, done)

    def read(
        self, stream: str, partition: int, query: Callable[[Any, StateRows], object],
        done: Callable[[object], None], *, at_least: int = 0,
    ) -> None:  # fmt: skip
        """`done` gets the result of `query` on the shard and its rows, once the log below `at_least` is applied.

        Or it gets an error. With a response's `end_offset` a client sees its own writes, whichever node leads.
        """
        try:
            active, replica = self._active(stream, partition), self._replicas[stream, partition]
        except DuramenError as error:
            done(error)
            return
        rows, answered = replica.rows, list[object]()

        def answer(value: object) -> None:
            if not answered:
                answered.append(value)
                deadline.cancel()
                done(value)

        def act() -> None:
            try:
                answer(query(active.shard, rows))
            except DuramenError as error:
                answer(error)

        late = CoordinatorLoading(f"the state is not at offset {at_least} after {_READER_MS} ms")
        deadline = self._kit.deadlines.at(self._kit.clock.monotonic_ms() + _READER_MS, partial(answer, late))
        active.read(at_least, act, answer)
        replica.advanced()

    def applied_offset(self, stream: str, partition: int) -> int:
        """The first offset that is not applied to a partition's rows; -1 if they cannot be read now."""
        replica = self._replicas.get((stream, partition))
        return -1 if replica is None else replica.position()

    def when_loaded(self, stream: str, done: Done) -> None:
        """Calls `done` once all shards of a stream that this node leads take commands, or with the error of one."""
        self._waiting.append((stream, done))
        self._tell_loaded()

    def _not_opened(self, error: DuramenError) -> None:
        self._opening.failed(error)
        self._each(_Replica.advanced)
        self._tell_loaded()

    @property
    def losses(self) -> Sequence[StateDamaged]:
        """The errors of the states that are lost on this node."""
        return [loss for one in self._replicas.values() if (loss := one.loss) is not None]

    @property
    def problem(self) -> DuramenError | None:
        """Why rows cannot be opened or written, once that has lasted for some time."""
        failures = (one.failure() for one in self._replicas.values())
        return next((error for error in failures if isinstance(error, StorageFailed)), self._opening.error)

    def _tell_loaded(self) -> None:
        waiting, self._waiting = self._waiting, []
        for stream, done in waiting:
            led = [one for (name, _), one in self._replicas.items() if name == stream and one.active is not None]
            failed = next((error for one in led if (error := one.failure()) is not None), self._opening.error)
            if all(one.loaded for one in led):
                done(None)
            elif failed is not None:
                done(failed)
            else:
                self._waiting.append((stream, done))

    def loaded(self, stream: str, partition: int) -> Any:
        """The present shard; None if this node does not coordinate it, or has not loaded it."""
        replica = self._replicas.get((stream, partition))
        active = None if replica is None else replica.active
        return None if active is None or not active.loaded else active.shard

    def _active(self, stream: str, partition: int) -> ActiveShard:
        replica = self._replicas.get((stream, partition))
        if replica is None or replica.active is None:
            why = "" if replica is None else replica.why_elsewhere()
            raise NotCoordinator(f"this node is not the coordinator of partition {partition} of {stream}{why}")
        return replica.active

    def check(self, stream: str, partition: int) -> None:
        """Raise NotCoordinator, CoordinatorLoading or a read error unless the state has all that is committed."""
        self._active(stream, partition).check_loaded()

    def coordinates(self, stream: str, partition: int) -> bool:
        """Whether a shard is loaded on this node."""
        replica = self._replicas.get((stream, partition))
        return replica is not None and replica.active is not None and replica.active.loaded

    def rows(self, stream: str, partition: int) -> StateRows:
        """The rows of a shard, as far as they are applied. Raises NotCoordinator if this node has none."""
        replica = self._replicas.get((stream, partition))
        if replica is None:
            raise NotCoordinator(f"there are no rows of partition {partition} of {stream} here")
        return replica.rows

    def together(self, stream: str, query: Callable[[], T], tries: int = 1) -> tuple[T | DuramenError, bool]:
        """The result of `query`, or its error; and whether it saw the rows of a stream's shards as of one moment.

        If not, because rows were written meanwhile, it is tried again.
        """
        states, logs = self._kit.states, self._logs_of(stream)
        while True:
            before = states.version()
            try:
                found: T | DuramenError = query()
            except DuramenError as error:
                found = error
            tries -= 1
            as_one = states.is_quiet(logs) or before == states.version()
            if as_one or tries <= 0:
                return found, as_one

    def is_quiet(self, stream: str) -> bool:
        """Whether no write to the rows of a stream's shards is in flight."""
        return self._kit.states.is_quiet(self._logs_of(stream))

    def when_quiet(self, stream: str, act: Callable[[], None]) -> None:
        """Call `act` once no write to the rows of a stream's shards is in flight; later ones wait for it."""
        self._kit.states.when_quiet(self._logs_of(stream), act)

    def _logs_of(self, stream: str) -> list[int]:
        return [one.partition.log.id for (name, _), one in self._replicas.items() if name == stream]

    def committed(self, stream: str, partition: int, base_offset: int, next_offset: int, batch: CommittedBatch) -> None:
        """A batch that this node itself appended to the log of a shard is committed."""
        replica = self._replicas.get((stream, partition))
        if replica is not None:
            replica.committed(base_offset, next_offset, lambda: batch)

    # -- events of the broker -----------------------------------------------------------------------

    def _each(self, act: Callable[[_Replica], None]) -> None:
        for replica in list(self._replicas.values()):
            act(replica)

    def _restored(self) -> None:
        if self._kit.states.is_foreign and self._kit.membership.first_role is None:
            self._kit.report("the stored state of coordinators does not fit the existing logs: it is rebuilt")
        if self._kit.states.available:
            self._opening.went_well()
        self._each(_Replica.restored)

    def _look(self) -> None:
        """Streams may have been created or deleted."""
        found = dict[tuple[str, int], Partition]()
        for name in self._kinds:
            stream = self._kit.streams.find(name)
            if stream is not None:
                found |= {(name, partition.index): partition for partition in stream.partitions}
        gone = [
            key for key, known in self._replicas.items()
            if key[0] in self._kinds and found.get(key) is not known.partition
        ]  # fmt: skip
        self._end(gone)
        for key, partition in found.items():
            self._run(self._kinds[key[0]], partition)

    def _end(self, gone: Sequence[tuple[str, int]]) -> None:
        for key in gone:
            self._replicas.pop(key).end()
        if gone:
            self._kit.states.sweep()

    def _run(self, kind: ShardKind[Any], partition: Partition) -> None:
        key = partition.stream.name, partition.index
        if key not in self._replicas:
            replica = self._replicas[key] = _Replica(self._kit, kind, partition, self._tell_loaded, self._opening)
            if self._kit.membership.first_role is None:
                replica.lead(partition.leader_epoch)  # a standalone node leads every partition
        else:
            self._replicas[key].advanced()  # its configs say when the log is truncated

    def _stream_changed(self, stream: Stream) -> None:
        kind = self._stream_kinds.get(stream.kind)
        if stream.name in self._kinds:
            self._look()
        elif kind is not None and stream.deleted:
            keys = [(stream.name, partition.index) for partition in stream.partitions]
            self._end([key for key in keys if key in self._replicas])
        elif kind is not None:
            for partition in stream.partitions:
                self._run(kind, partition)

    def led(self, partition: Partition, leader_epoch: int | None) -> None:
        """The node leads a partition from now on, in that epoch; None: no longer."""
        if partition.stream.name in self._kinds:
            self._look()
        replica = self._replicas.get((partition.stream.name, partition.index))
        if replica is None:
            return
        replica.unlead()
        if leader_epoch is not None:
            replica.lead(leader_epoch)

    # -- requests of other nodes --------------------------------------------------------------------

    def _serve(self, request: FetchRows, done: Answered[RowsPage]) -> None:
        def found(page: CheckpointPage | DuramenError) -> None:
            done(page if isinstance(page, DuramenError) else page_of(page, request.number))

        for replica in self._replicas.values():
            stream_id, index = replica.place
            if stream_id.bytes == request.stream and index == request.partition:
                self._read_ms = self._kit.clock.monotonic_ms()
                self._kit.states.page(
                    replica.partition.log, request.checkpoint, request.start_offset, request.after, found
                )  # fmt: skip
                return
        done(RequestInvalid(f"there are no rows of partition {request.partition} here"))
