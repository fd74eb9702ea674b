"""The runtime on a node: runs the shards of the partitions that it leads, and takes their commands and queries."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    NotCoordinator,
    RequestInvalid,
    StateDamaged,
    StorageFailed,
)
from duramen.base.ports import StateRows
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.coordinators.runtime.active import ActiveShard, AnswerDone
from duramen.coordinators.runtime.applying import Done, Retry
from duramen.coordinators.runtime.batches import CommittedBatch
from duramen.coordinators.runtime.checkpoints import CheckpointPage
from duramen.coordinators.runtime.dependencies import RuntimeDependencies
from duramen.coordinators.runtime.rows import RowStates
from duramen.coordinators.runtime.shard import ShardKind
from duramen.coordinators.runtime.shard_replica import ShardReplica
from duramen.coordinators.runtime.transfer import FETCH_ROWS, FetchRows, RowsPage, page_of
from duramen.rpc.server import Done as Answered

__all__ = ["Runtime"]

T = TypeVar("T")

_READ_MS: Final = 10_000
"""The period for which a checkpoint is kept after its last read by another node."""
_READER_MS: Final = 3_000


class Runtime:
    """Shards of several kinds, created before the broker starts; `states` are opened for the first shard with rows."""

    def __init__(self, parts: RuntimeDependencies, kinds: Sequence[ShardKind[Any]]) -> None:
        self._parts = parts
        self._kinds = {kind.stream: kind for kind in kinds if not kind.stream_kind}
        self._stream_kinds = {kind.stream_kind: kind for kind in kinds if kind.stream_kind}
        self._replicas: dict[tuple[str, int], ShardReplica] = {}
        self._read_ms = -_READ_MS
        self._waiting: list[tuple[str, Done]] = []  # callbacks until all shards of a stream are loaded
        parts.caller.server.handle(FETCH_ROWS, self._serve)
        parts.streams.listeners.append(self._stream_changed)
        self._opening = Retry(parts.clock, parts.deadlines, parts.states.open)
        parts.states.not_opened = self._not_opened
        parts.states.restored = self._restored
        parts.states.checkpoints.kept = partial(self._each, ShardReplica.advanced)
        parts.states.checkpoints.is_read = lambda: parts.clock.monotonic_ms() - self._read_ms < _READ_MS

    # -- commands and queries -----------------------------------------------------------------------

    @property
    def states(self) -> RowStates:
        """The rows of all kinds."""
        return self._parts.states

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
        self._parts.store.soon(action)

    def beside(self, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run a job off the event loop; it must not read the states."""
        self._parts.store.run(job, done)

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

        def late() -> None:
            leave()
            answer(CoordinatorLoading(f"the state is not at offset {at_least} after {_READER_MS} ms"))

        deadline = self._parts.deadlines.at(self._parts.clock.monotonic_ms() + _READER_MS, late)
        leave = active.read(at_least, act, answer)
        replica.advanced()

    def applied_offset(self, stream: str, partition: int) -> int:
        """The first offset that is not applied to a partition's rows; -1 if they cannot be read now."""
        replica = self._replicas.get((stream, partition))
        return -1 if replica is None else replica.position()

    def when_loaded(self, stream: str, done: Done) -> None:
        """Calls `done` once all shards of a stream that this node leads take commands, or with the error of one."""
        self._waiting.append((stream, done))
        self._check_loaded()

    def _not_opened(self, error: DuramenError) -> None:
        self._opening.failed(error)
        self._each(ShardReplica.advanced)
        self._check_loaded()

    @property
    def losses(self) -> Sequence[StateDamaged]:
        """The errors of the states that are lost on this node."""
        return [loss for one in self._replicas.values() if (loss := one.loss) is not None]

    @property
    def problem(self) -> DuramenError | None:
        """Why rows cannot be opened or written, once that has lasted for some time."""
        failures = (one.failure() for one in self._replicas.values())
        return next((error for error in failures if isinstance(error, StorageFailed)), self._opening.error)

    def _check_loaded(self) -> None:
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
            why = "" if replica is None else replica.reason_not_leading()
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
        states, logs = self._parts.states, self._logs_of(stream)
        while True:
            before = states.version()
            try:
                found: T | DuramenError = query()
            except DuramenError as error:
                found = error
            tries -= 1
            as_one = states.writes.is_quiet(logs) or before == states.version()
            if as_one or tries <= 0:
                return found, as_one

    def is_quiet(self, stream: str) -> bool:
        """Whether no write to the rows of a stream's shards is in flight."""
        return self._parts.states.writes.is_quiet(self._logs_of(stream))

    def when_quiet(self, stream: str, act: Callable[[], None]) -> None:
        """Call `act` once no write to the rows of a stream's shards is in flight; later ones wait for it."""
        self._parts.states.writes.when_quiet(self._logs_of(stream), act)

    def _logs_of(self, stream: str) -> list[int]:
        return [one.partition.log.id for (name, _), one in self._replicas.items() if name == stream]

    def committed(self, stream: str, partition: int, base_offset: int, next_offset: int, batch: CommittedBatch) -> None:
        """A batch that this node itself appended to the log of a shard is committed."""
        replica = self._replicas.get((stream, partition))
        if replica is not None:
            replica.committed(base_offset, next_offset, lambda: batch)

    # -- events of the broker -----------------------------------------------------------------------

    def _each(self, act: Callable[[ShardReplica], None]) -> None:
        for replica in list(self._replicas.values()):
            act(replica)

    def _restored(self) -> None:
        if self._parts.states.is_foreign and self._parts.membership.first_role is None:
            self._parts.report("the stored state of coordinators does not fit the existing logs: it is rebuilt")
        if self._parts.states.available:
            self._opening.went_well()
        self._each(ShardReplica.restored)

    def _update_replicas(self) -> None:
        """Streams may have been created or deleted."""
        found = dict[tuple[str, int], Partition]()
        for name in self._kinds:
            stream = self._parts.streams.find(name)
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
            self._parts.states.sweep()

    def _run(self, kind: ShardKind[Any], partition: Partition) -> None:
        key = partition.stream.name, partition.index
        if key not in self._replicas:
            replica = self._replicas[key] = ShardReplica(
                self._parts, kind, partition, self._check_loaded, self._opening
            )
            if self._parts.membership.first_role is None:
                replica.lead(partition.leader_epoch)  # a standalone node leads every partition
        else:
            self._replicas[key].advanced()  # its configs say when the log is truncated

    def _stream_changed(self, stream: Stream) -> None:
        kind = self._stream_kinds.get(stream.kind)
        if stream.name in self._kinds:
            self._update_replicas()
        elif kind is not None and stream.deleted:
            keys = [(stream.name, partition.index) for partition in stream.partitions]
            self._end([key for key in keys if key in self._replicas])
        elif kind is not None:
            for partition in stream.partitions:
                self._run(kind, partition)

    def led(self, partition: Partition, leader_epoch: int | None) -> None:
        """The node leads a partition from now on, in that epoch; None: no longer."""
        if partition.stream.name in self._kinds:
            self._update_replicas()
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
                self._read_ms = self._parts.clock.monotonic_ms()
                self._parts.states.checkpoints.page(
                    replica.partition.log, request.checkpoint, request.start_offset, request.after, found
                )  # fmt: skip
                return
        done(RequestInvalid(f"there are no rows of partition {request.partition} here"))
