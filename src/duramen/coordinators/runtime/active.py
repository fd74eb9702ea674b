"""A shard at the leader of its partition: from a command to the response, once its records are applied."""

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from duramen.base.errors import CoordinatorLoading, DuramenError, NotCoordinator, NotLeader, StorageFailed
from duramen.base.ports import Clock, StateRows
from duramen.broker.partition import Partition
from duramen.codec.batch import TRANSACTIONAL, BatchInput, DecodedRecord, encode, header
from duramen.coordinators.runtime.batches import CommittedBatch
from duramen.coordinators.runtime.shard import CoordinatorShard, Decision, ShardAnswer, TransactionProducer

__all__ = ["ActiveShard", "AnswerDone", "OwnBatch", "TakeSteps", "Unloaded"]

AnswerDone = Callable[[ShardAnswer | DuramenError], None]
TakeSteps = Callable[[Iterator[None], Callable[[DuramenError | None], None]], None]
"""Runs steps during which no record is applied, then reports their outcome."""
OwnBatch = Callable[[int, int, Callable[[], CommittedBatch]], None]
"""Called with the first and the end offset of a batch, and a function that returns its content."""
Unloaded = Callable[[DuramenError], None]

_BATCH_BYTES: Final = 256 << 10
_MOST_COMMANDS: Final = 10_000


class _Pending:
    """A command in progress."""

    __slots__ = ("ahead", "command", "decision", "done", "keys", "place")

    def __init__(self, command: Any, keys: Collection[Hashable], done: AnswerDone) -> None:
        self.command = command
        self.keys = keys
        self.done = done
        self.decision = Decision((), None)
        self.place = 0  # the index of its first record in the batch
        self.ahead = 0  # the number of its keys for which other commands come first


class _Reader(NamedTuple):
    """Waits until the state has applied the log below `at_least`."""

    at_least: int
    act: Callable[[], None]
    refuse: Callable[[DuramenError], None]


class ActiveShard:
    """Commands of one turn of the event loop go into one batch.

    The shard is loaded once all records that earlier leaders acknowledged are applied, and its memory is rebuilt from
    them.
    """

    def __init__(
        self, shard: CoordinatorShard[Any], partition: Partition, rows: StateRows, clock: Clock,
        soon: Callable[[Callable[[], None]], None], take_steps: TakeSteps,
    ) -> None:  # fmt: skip
        self.shard = shard
        self.loaded = False
        self._loading = False
        self._partition = partition
        self._rows = rows
        self._clock = clock
        self._soon = soon
        self._take_steps = take_steps
        self.own: OwnBatch = lambda *_: self.advanced(self._position, self._failed)
        """Receives each committed batch of this shard; it calls `advanced`."""
        self.unloaded: Unloaded = lambda _: None
        """Receives the reason why no more commands are taken, before the shard may be loaded again."""
        self._target = partition.log.end_offset
        self._position = -1
        self._failed: DuramenError | None = None
        self._commands = 0  # waiting or in progress
        self._turns: dict[Hashable, _Pending | deque[_Pending]] = {}  # the first of each key is decided or in progress
        self._waiting: dict[_Pending, None] = {}  # those behind others in a turn
        self._batch: list[_Pending] = []
        self._appended: deque[tuple[int, int, list[_Pending]]] = deque()  # by their first and end offsets
        self._on_their_way: dict[int, list[_Pending]] = {}
        self._numbers = 0
        self._readers: dict[int, _Reader] = {}
        self._over: DuramenError | None = None
        self._loads = 0

    def apply(self, record: DecodedRecord) -> None:
        """Apply a committed record, of this leadership or of an earlier one."""
        self.shard.apply(record)

    def check_loaded(self) -> None:
        """Raise the reason why the state cannot be used: NotCoordinator, CoordinatorLoading, or a read error."""
        self._check_leads()
        if not self.loaded:
            raise self._failed or CoordinatorLoading("the stored state is still being loaded")

    def check(self) -> None:
        """Raise the reason why no command is taken: as `check_loaded`, or CoordinatorLoading if too many wait."""
        self.check_loaded()
        if self._commands + len(self._readers) >= _MOST_COMMANDS:
            raise CoordinatorLoading(f"{_MOST_COMMANDS} commands wait already")

    def _check_leads(self) -> None:
        if self._over is not None:
            raise self._over
        try:
            self._partition.check_leads()
        except DuramenError as error:
            raise NotCoordinator(f"this node is not the coordinator: {error}") from None

    def submit(self, command: Any, done: AnswerDone) -> None:
        """`done` gets the response once the command's records are applied, or the error."""
        try:
            self.check()
        except DuramenError as error:
            done(error)
        else:
            self._take(command, done)

    def submit_while_loading(self, command: Any, done: AnswerDone) -> None:
        """Like `submit`, but also while the shard rebuilds its memory: for the shard itself."""
        if self._loading:
            self._take(command, done)
        else:
            self.submit(command, done)

    def _take(self, command: Any, done: AnswerDone) -> None:
        self._commands += 1
        pending = _Pending(command, frozenset(self.shard.keys_of(command)), done)
        # It takes its turn for all its keys at once: two commands have the same order for every key.
        for key in pending.keys:
            turn = self._turns.setdefault(key, pending)
            if turn is pending:
                continue
            pending.ahead += 1
            if isinstance(turn, deque):
                turn.append(pending)
            else:
                self._turns[key] = deque((turn, pending))
        if pending.ahead:
            self._waiting[pending] = None
        else:
            self._decide(pending)

    def begin(self, command: Any, done: AnswerDone) -> None:
        """Like `submit`; an earlier response means that the records come before all later appends."""
        self.submit(command, done)

    def read(
        self, at_least: int, act: Callable[[], None], refuse: Callable[[DuramenError], None]
    ) -> Callable[[], object]:
        """Call `act` once the state has applied the log below `at_least`, or `refuse`; the result ends the wait."""
        try:
            self.check()
        except DuramenError as error:
            refuse(error)
            return lambda: None
        self._numbers += 1
        self._readers[self._numbers] = _Reader(at_least, act, refuse)
        return partial(self._readers.pop, self._numbers, None)

    # -- from a command to the log ------------------------------------------------------------------

    def _decide(self, pending: _Pending) -> None:
        try:
            self._check_leads()
            pending.decision = self.shard.decide(pending.command, self._rows, self._clock.wall_ms())
        except DuramenError as error:
            self._answer(pending, error)
            return
        except Exception as error:  # noqa: BLE001 -- a bug: other commands continue
            self._fail([pending], error)
            return
        if pending.decision.together is not None:
            raise AssertionError("what has replicas goes into the log alone")
        if pending.decision.records and pending.decision.producer is not None:
            # Append at once: the records must come before the end of the transaction.
            self._flush()
            self._batch.append(pending)
            self._flush()
        elif pending.decision.records or pending.decision.inputs:
            self._batch.append(pending)
            if len(self._batch) == 1:
                self._soon(self._flush)
        else:
            # The state of the decision was committed, and has been applied by now.
            self._answer(pending, ShardAnswer(pending.decision.response, 0))

    def _flush(self) -> None:
        batch, self._batch, loads = self._batch, [], self._loads
        now_ms, some, size, new = self._clock.wall_ms(), list[_Pending](), 0, list[BatchInput]()
        for pending in batch:
            if loads != self._loads:
                # An earlier write failed: this decision used a state that is reloaded.
                self._end_of(pending, CoordinatorLoading("the stored state was reloaded meanwhile"))
                continue
            some.append(pending)
            pending.place = len(new)
            new += (BatchInput(now_ms, key, value) for key, value in pending.decision.records)
            new += pending.decision.inputs
            size += sum(len(one.key or b"") + len(one.value or b"") for one in new[pending.place :])
            if size >= _BATCH_BYTES or pending is batch[-1]:
                self._append(some, new)
                some, new, size = [], [], 0

    def _append(self, some: list[_Pending], new: list[BatchInput]) -> None:
        producer = some[0].decision.producer
        try:
            if producer is None:
                data = encode(new)
            else:
                data = encode(
                    new, attributes=TRANSACTIONAL, producer_id=producer.id, producer_epoch=producer.epoch,
                    base_sequence=-1,
                )  # fmt: skip
        except Exception as error:  # noqa: BLE001 -- as above
            self._fail(some, error)
            return
        self._numbers += 1
        self._on_their_way[self._numbers] = some
        self._partition.store(data, header(data), partial(self._stored, self._numbers, new, producer))

    def _fail(self, some: Sequence[_Pending], error: Exception) -> None:
        """A bug made these commands fail: commands that wait for the same keys continue, and the loop reports it."""
        self._soon(partial(_raise, error))
        for pending in some:
            self._answer(pending, DuramenError("an unexpected error; the node's log has details"))

    def _stored(
        self, number: int, new: list[BatchInput], producer: TransactionProducer | None, base_offset: int,
        error: DuramenError | None,
    ) -> None:  # fmt: skip
        some = self._on_their_way.pop(number, None)
        if some is None:
            return  # they got their response when the leadership ended, or when other writes became uncertain
        if error is None:
            end_offset = base_offset + len(new)
            self._appended.append((base_offset, end_offset, some))
            self.own(base_offset, end_offset, partial(_committed, base_offset, new, producer))
        elif self._may_be_stored(error):
            refusal = NotCoordinator(str(error)) if isinstance(error, NotLeader) else error
            reason = CoordinatorLoading("the state has to be reloaded after a failed write")
            self._stop(reason)
            for pending in some:
                self._end_of(pending, refusal)
            self._refuse(reason)
            self._soon(self._load_again)
        else:
            for pending in some:
                self._answer(pending, error)

    def _may_be_stored(self, error: DuramenError) -> bool:
        """Whether the records may be in the log; on a standalone node records that failed to be stored never are."""
        return not (error.outcome_known or (isinstance(error, StorageFailed) and self._partition.role is None))

    # -- from the log to the answer -----------------------------------------------------------------

    def advanced(self, position: int, failed: DuramenError | None = None) -> None:
        """The state has applied the log below `position`; with `failed` it has not advanced for some time."""
        self._position, self._failed = position, failed
        if self._over is not None:
            return
        if failed is not None and self.loaded:
            self.reload(failed)  # what waits would wait for as long as the failure lasts
            return
        self._load()
        while self._appended and self._appended[0][1] <= self._position:
            base_offset, end_offset, some = self._appended.popleft()
            for pending in some:
                answer = ShardAnswer(pending.decision.response, end_offset, base_offset + pending.place)
                self._answer(pending, answer)
        for number in [number for number, reader in self._readers.items() if reader.at_least <= self._position]:
            # A reader that finds damaged rows makes the others fail.
            reader = self._readers.pop(number, None)
            if reader is not None:
                reader.act()

    def _load(self) -> None:
        if self._position >= self._target and not (self.loaded or self._loading):
            self._loading = True
            self._take_steps(self._steps(self._loads), partial(self._load_ended, self._loads))

    def _steps(self, loads: int) -> Iterator[None]:
        if self._is_over(loads):
            return
        for _ in self.shard.loaded(self._rows):
            yield
            if self._is_over(loads):
                return

    def _load_ended(self, loads: int, error: DuramenError | None) -> None:
        if not self._is_over(loads):
            self._loading, self.loaded = False, error is None

    def _is_over(self, loads: int) -> bool:
        """Whether the leadership has ended, or the state is reloaded."""
        return self._over is not None or loads != self._loads

    def _answer(self, pending: _Pending, answer: ShardAnswer | DuramenError) -> None:
        for key in pending.keys:
            turn = self._turns.get(key)
            if turn is pending:
                del self._turns[key]
                continue
            if not isinstance(turn, deque) or turn[0] is not pending:
                continue  # all waiting commands were refused
            turn.popleft()
            if not turn:
                del self._turns[key]
                continue
            turn[0].ahead -= 1
            if not turn[0].ahead:
                del self._waiting[turn[0]]
                self._soon(partial(self._turn, self._loads, turn[0]))
        self._end_of(pending, answer)

    def _end_of(self, pending: _Pending, answer: ShardAnswer | DuramenError) -> None:
        self._commands -= 1
        if pending.decision.over is not None:
            pending.decision.over()
        pending.done(answer)

    def _turn(self, loads: int, pending: _Pending) -> None:
        if not self._is_over(loads):
            self._decide(pending)
        else:
            self._end_of(pending, self._over or CoordinatorLoading("the stored state was reloaded meanwhile"))

    # -- the end ------------------------------------------------------------------------------------

    def reload(self, error: DuramenError) -> None:
        """Take no commands until every record in the log is either committed and applied, or discarded."""
        self._stop(error)
        self._refuse(error)
        self._soon(self._load_again)

    def _stop(self, error: DuramenError) -> None:
        self.loaded = self._loading = False
        self._loads += 1
        self._target = self._partition.log.end_offset
        self.unloaded(error)

    def suspend(self, error: DuramenError) -> None:
        """Like `reload`, for a replaced state, until `advanced` reports its position."""
        self._position = -1
        self.reload(error)

    def _load_again(self) -> None:
        self.advanced(self._position, self._failed)

    def end(self, error: DuramenError) -> None:
        """Another node may lead the partition from now on."""
        self._over = error
        self.unloaded(error)
        self._refuse(error)

    def _refuse(self, error: DuramenError) -> None:
        """Fail waiting commands with `error`; the outcome of appended ones is unknown."""
        waiting = [*self._waiting, *self._batch]
        under_way = [one for some in self._on_their_way.values() for one in some]
        under_way += [one for _, _, some in self._appended for one in some]
        unknown = NotCoordinator(f"it is not known whether the command was stored: {error}")
        readers, self._readers = self._readers, {}
        self._turns.clear()
        self._waiting.clear()
        self._batch = []
        self._on_their_way.clear()
        self._appended.clear()
        for pending in waiting:
            self._end_of(pending, error)
        for pending in under_way:
            self._end_of(pending, unknown)
        for reader in readers.values():
            reader.refuse(error)


def _raise(error: Exception) -> None:
    raise error


def _committed(base_offset: int, new: list[BatchInput], producer: TransactionProducer | None) -> CommittedBatch:
    records = [
        DecodedRecord(offset, one.timestamp, one.key, one.value, tuple(one.headers))
        for offset, one in enumerate(new, base_offset)
    ]
    return CommittedBatch(records) if producer is None else CommittedBatch(records, producer.id, transactional=True)
