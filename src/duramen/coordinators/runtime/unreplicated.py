"""A shard whose partition has no replicas, on a standalone node: records apply in the order of their appends.

Each command is decided on everything that earlier commands have appended, and its records are appended at once: no
command waits for another. The response comes when they are durable. Records that could not be stored are discarded by
reading the log again.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from duramen.base.errors import CoordinatorLoading, DuramenError, NotCoordinator
from duramen.base.ports import Clock, StateRows
from duramen.broker.partition import Partition
from duramen.codec.batch import BatchInput, DecodedRecord, Header, encode, header
from duramen.coordinators.runtime.active import ActiveShard, AnswerDone, TakeSteps
from duramen.coordinators.runtime.shard import CoordinatorShard, Decision, Record, ShardAnswer, Together
from duramen.storage.log.log import Log
from duramen.storage.store import Store

__all__ = ["UnreplicatedDependencies", "UnreplicatedShard"]

_Batch = tuple[Log, bytearray, Header]


class UnreplicatedDependencies(NamedTuple):
    """Dependencies: `moved` is called after more records are stored, `again` to rebuild the state."""

    store: Store
    moved: Callable[[], None]
    again: Callable[[], None]


class _UnderWay:
    """Appended records that are not known to be durable; `behind` are responses that rest on them."""

    __slots__ = ("behind", "decision", "done", "error", "known")

    def __init__(self, decision: Decision, done: AnswerDone) -> None:
        self.decision = decision
        self.done = done
        self.behind: list[tuple[AnswerDone, ShardAnswer]] = []
        self.error: DuramenError | None = None
        self.known = False  # whether the state has it


class UnreplicatedShard(ActiveShard):
    """Commands are decided on the appended records."""

    def __init__(
        self, shard: CoordinatorShard[Any], partition: Partition, rows: StateRows, clock: Clock,
        soon: Callable[[Callable[[], None]], None], take_steps: TakeSteps, parts: UnreplicatedDependencies,
    ) -> None:  # fmt: skip
        super().__init__(shard, partition, rows, clock, soon, take_steps)
        self._parts = parts
        self._under_way: dict[_UnderWay, None] = {}
        self._reached = -1  # all below is stored, and applied without reading it
        self._moves = False  # whether a call of `moved` is scheduled
        self._stale = False  # whether the state has records that are not stored

    def submit(self, command: Any, done: AnswerDone) -> None:
        decision = self._decision(command, done)
        if decision is None:
            return
        answer = ShardAnswer(decision.response, 0)
        if _is_stored(decision):
            self._write(decision, done)
        elif self._under_way:
            next(reversed(self._under_way)).behind.append((done, answer))
        else:
            done(answer)

    def begin(self, command: Any, done: AnswerDone) -> None:
        decision = self._decision(command, done)
        if decision is not None:
            error = self._write(decision, _nobody) if _is_stored(decision) else None
            done(ShardAnswer(decision.response, 0) if error is None else error)

    def _decision(self, command: Any, done: AnswerDone) -> Decision | None:
        try:
            self.check()
            return self.shard.decide(command, self._rows, self._clock.wall_ms())
        except DuramenError as error:
            done(error)
            return None

    # -- storing ------------------------------------------------------------------------------------

    def _write(self, decision: Decision, done: AnswerDone) -> DuramenError | None:
        """Append a decision, and apply it at once; returns the error if the append is refused immediately."""
        one = _UnderWay(decision, done)
        batches = [self._batch_of(decision.records, decision.inputs)] if _has_records(decision) else []
        self._under_way[one] = None
        self._commands += 1
        if decision.together is None:
            ((_, data, head),) = batches
            self._partition.store(data, head, partial(self._written, one))
        else:
            self._write_together(one, decision.together, batches)
        if one.error is None:
            one.known = True
            self._know(decision.records, decision.inputs)
        return one.error

    def _write_together(self, one: _UnderWay, together: Together, before: Sequence[_Batch]) -> None:
        behind = [self._batch_of(together.records)] if together.records else []

        def stored(offsets: list[int], error: DuramenError | None) -> None:
            if error is not None:
                self._written(one, -1, error)
                return
            together.stored(offsets[len(before) : len(offsets) - len(behind)])
            self._written(one, offsets[-1] if behind else offsets[0] if before else -1, None)

        store = self._parts.store
        store.append_together([*before, *together.batches, *behind], store.node_epoch, stored)

    def _batch_of(self, records: Sequence[Record], inputs: Sequence[BatchInput] = ()) -> _Batch:
        now_ms = self._clock.wall_ms()
        data = encode([*(BatchInput(now_ms, key, value) for key, value in records), *inputs])
        return self._partition.log, data, header(data)

    def _know(self, records: Sequence[Record], inputs: Sequence[BatchInput] = ()) -> None:
        now_ms = self._clock.wall_ms()
        for key, value in records:
            self.shard.apply(DecodedRecord(-1, now_ms, key, value, ()))
        for one in inputs:
            self.shard.apply(DecodedRecord(-1, one.timestamp, one.key, one.value, tuple(one.headers)))

    def apply(self, record: DecodedRecord) -> None:
        if not self.loaded:  # else the record is the shard's own
            super().apply(record)

    def _written(self, one: _UnderWay, base_offset: int, error: DuramenError | None) -> None:
        if one not in self._under_way:
            return  # it got its response when the leadership ended
        del self._under_way[one]
        self._commands -= 1
        one.error = error
        if error is None:
            self._acknowledge(one, base_offset)
        else:
            self._refuse_stored(one, error)
        if self._stale and not self._under_way:
            self._soon(self._parts.again)

    def _acknowledge(self, one: _UnderWay, base_offset: int) -> None:
        decision, together = one.decision, one.decision.together
        count = len(decision.records) + len(decision.inputs)
        if together is not None and together.records:
            count = len(together.records)
            self._know(together.records)
        end_offset = base_offset + count if count else 0
        self._reached = max(self._reached, end_offset)
        one.done(ShardAnswer(one.decision.response, end_offset))
        for done, answer in one.behind:
            done(answer)
        if not self._moves:
            self._moves = True
            self._soon(self._moved)

    def _moved(self) -> None:
        self._moves = False
        self._parts.moved()

    # -- after a failed append ----------------------------------------------------------------------

    def _refuse_stored(self, one: _UnderWay, error: DuramenError) -> None:
        # A batch that is refused immediately is not in the state.
        reason = CoordinatorLoading("the stored state has to be reloaded")
        if one.known and not self._stale:
            self.loaded, self._stale = False, True
            self.unloaded(reason)
        one.done(error)
        for done, _ in one.behind:
            done(reason)

    def advanced(self, position: int, failed: DuramenError | None = None) -> None:
        if not self._stale:
            super().advanced(max(position, self._reached), failed)

    def _load(self) -> None:
        if self._target > self._partition.log.start_offset or self.loaded:
            super()._load()
        else:
            # An empty log needs no reading: the creator of the stream need not retry.
            for _ in self.shard.loaded(self._rows):
                pass
            self.loaded = True

    def _refuse(self, error: DuramenError) -> None:
        super()._refuse(error)
        under_way, self._under_way = self._under_way, {}
        self._commands -= len(under_way)
        unknown = NotCoordinator(f"it is not known whether the command was stored: {error}")
        for one in under_way:
            one.done(unknown)
            for done, _ in one.behind:
                done(error)


def _is_stored(decision: Decision) -> bool:
    return _has_records(decision) or decision.together is not None


def _has_records(decision: Decision) -> bool:
    return bool(decision.records or decision.inputs)


def _nobody(_: ShardAnswer | DuramenError) -> None:
    """A callback without a waiting caller."""
