"""A shard at the leader of its partition: from a command to the response, once its records are applied."""

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    NotCoordinator,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    StorageFailed,
)
from duramen.base.ports import Clock, StateRows
from duramen.broker.partition import Partition
from duramen.codec.batch import TRANSACTIONAL, BatchInput, DecodedRecord, encode, header
from duramen.coordinators.runtime.batches import CommittedBatch
from duramen.coordinators.runtime.shard import CoordinatorShard, Decision, ShardAnswer, TransactionProducer

__all__ = ["ActiveShard", "AnswerDone", "OwnBatch", "TakeSteps", "Unloaded"]

AnswerDone = Callable[[ShardAnswer | DuramenError], None]
TakeSteps = Callable[[Iterator[None], Callable[[DuramenError | None], None]], None]
"""Takes steps while no record is applied, then tells how they ended."""
OwnBatch = Callable[[int, int, CommittedBatch], None]
"""Called with the offsets at which a batch begins and ends, and what is in it."""
Unloaded = Callable[[DuramenError], None]

_BATCH_BYTES: Final = 256 << 10
_MOST_COMMANDS: Final = 10_000
_UNKNOWN: Final = (NotEnoughReplicasAfterAppend, NotLeader, StorageFailed)
"""A record may be in the log, and count or not. On a node that is alone none counts whose storing has failed."""


class _Pending:
    """A command on its way."""

    __slots__ = ("ahead", "command", "decision", "done", "keys", "place")

    def __init__(self, command: Any, keys: Collection[Hashable], done: AnswerDone) -> None:
        self.command = command
        self.keys = keys
        self.done = done
        self.decision = Decision((), None)
        self.place = 0  # of its first record in the batch
        self.ahead = 0  # in the turns of how many of its keys others come first


class _Reader(NamedTuple):
    """Waits until the state has what is below `at_least`."""

    at_least: int
    act: Callable[[], None]
    refuse: Callable[[DuramenError], None]


class ActiveShard:
    """Commands that come in one turn go into one batch.

    It is loaded once all that earlier leaders have acknowledged is applied, and the shard has made of it what it keeps
    in memory.
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
        """Told of each batch of this shard's that is committed; it calls `advanced`."""
        self.unloaded: Unloaded = lambda _: None
        """Told why no commands are taken from here on, before the shard may be loaded again."""
        self._target = partition.log.end_offset
        self._position = -1
        self._failed: DuramenError | None = None
        self._commands = 0  # that wait or are under way
        self._turns: dict[Hashable, deque[_Pending]] = {}  # who is decided or under way comes first
        self._waiting: dict[_Pending, None] = {}  # those that others come before
        self._batch: list[_Pending] = []
        self._appended: deque[tuple[int, int, list[_Pending]]] = deque()  # by their offsets, and those behind
        self._on_their_way: dict[int, list[_Pending]] = {}
        self._numbers = 0
        self._readers: dict[int, _Reader] = {}
        self._over: DuramenError | None = None
        self._loads = 0

    def apply(self, record: DecodedRecord) -> None:
        """A committed record, of this leadership or of an earlier one."""
        self.shard.apply(record)

    def check_loaded(self) -> None:
        """Raise why the state says nothing: NotCoordinator, CoordinatorLoading, or why it cannot be read."""
        self._check_leads()
        if not self.loaded:
            raise self._failed or CoordinatorLoading("the stored state is still being loaded")

    def check(self) -> None:
        """Raise why no command is taken: what `check_loaded` does, or CoordinatorLoading where too many wait."""
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
        """`done` gets the answer once what the command came to is applied, or why there is none."""
        try:
            self.check()
        except DuramenError as error:
            done(error)
        else:
            self._take(command, done)

    def submit_while_loading(self, command: Any, done: AnswerDone) -> None:
        """As `submit`, also while the shard makes anew what it has in memory: for the shard itself."""
        if self._loading:
            self._take(command, done)
        else:
            self.submit(command, done)

    def _take(self, command: Any, done: AnswerDone) -> None:
        self._commands += 1
        pending = _Pending(command, frozenset(self.shard.keys_of(command)), done)
        # In the turns of all its keys at once: of two commands the same one comes first everywhere.
        for key in pending.keys:
            turn = self._turns.setdefault(key, deque())
            pending.ahead += bool(turn)
            turn.append(pending)
        if pending.ahead:
            self._waiting[pending] = None
        else:
            self._decide(pending)

    def begin(self, command: Any, done: AnswerDone) -> None:
        """As `submit`; an answer that comes earlier says that the records stand before what is appended later."""
        self.submit(command, done)

    def read(self, at_least: int, act: Callable[[], None], refuse: Callable[[DuramenError], None]) -> None:
        """Do `act` once the state has what is below `at_least`, or `refuse`."""
        try:
            self.check()
        except DuramenError as error:
            refuse(error)
            return
        self._numbers += 1
        self._readers[self._numbers] = _Reader(at_least, act, refuse)

    # -- from a command to the log ------------------------------------------------------------------

    def _decide(self, pending: _Pending) -> None:
        try:
            self._check_leads()
            pending.decision = self.shard.decide(pending.command, self._rows, self._clock.wall_ms())
        except DuramenError as error:
            self._answer(pending, error)
            return
        if pending.decision.together is not None:
            raise AssertionError("what has replicas goes into the log alone")
        if pending.decision.records and pending.decision.producer is not None:
            # Into the log at once: before whatever ends the transaction.
            self._flush()
            self._batch.append(pending)
            self._flush()
        elif pending.decision.records or pending.decision.inputs:
            self._batch.append(pending)
            if len(self._batch) == 1:
                self._soon(self._flush)
        else:
            # What it was decided on has been applied, and was committed by then.
            self._answer(pending, ShardAnswer(pending.decision.response, 0))

    def _flush(self) -> None:
        batch, self._batch, loads = self._batch, [], self._loads
        now_ms, some, size, new = self._clock.wall_ms(), list[_Pending](), 0, list[BatchInput]()
        for pending in batch:
            if loads != self._loads:
                # What came before could not be stored: this was decided on a state that is read anew.
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
        self._numbers += 1
        self._on_their_way[self._numbers] = some
        producer = some[0].decision.producer
        if producer is None:
            data = encode(new)
        else:
            data = encode(
                new, attributes=TRANSACTIONAL, producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=-1
            )
        self._partition.store(data, header(data), partial(self._stored, self._numbers, new, producer))

    def _stored(
        self, number: int, new: list[BatchInput], producer: TransactionProducer | None, base_offset: int,
        error: DuramenError | None,
    ) -> None:  # fmt: skip
        some = self._on_their_way.pop(number, None)
        if some is None:
            return  # they were answered when the leadership ended, or when others became uncertain
        if error is None:
            end_offset = base_offset + len(new)
            self._appended.append((base_offset, end_offset, some))
            self.own(base_offset, end_offset, _committed(base_offset, new, producer))
        elif isinstance(error, _UNKNOWN) and not (isinstance(error, StorageFailed) and self._partition.role is None):
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

    # -- from the log to the answer -----------------------------------------------------------------

    def advanced(self, position: int, failed: DuramenError | None = None) -> None:
        """The state has what is below `position`; `failed`: it does not come any further for some time."""
        self._position, self._failed = position, failed
        if self._over is not None:
            return
        self._load()
        while self._appended and self._appended[0][1] <= self._position:
            base_offset, end_offset, some = self._appended.popleft()
            for pending in some:
                answer = ShardAnswer(pending.decision.response, end_offset, base_offset + pending.place)
                self._answer(pending, answer)
        for number in [number for number, reader in self._readers.items() if reader.at_least <= self._position]:
            # One that finds the rows damaged has the others refused.
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
        """Whether the leadership has ended, or what is stored is read anew."""
        return self._over is not None or loads != self._loads

    def _answer(self, pending: _Pending, answer: ShardAnswer | DuramenError) -> None:
        for key in pending.keys:
            turn = self._turns.get(key)
            if turn is None or turn[0] is not pending:
                continue  # all that waited were refused
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
        pending.done(answer)

    def _turn(self, loads: int, pending: _Pending) -> None:
        if not self._is_over(loads):
            self._decide(pending)
        else:
            self._end_of(pending, self._over or CoordinatorLoading("the stored state was reloaded meanwhile"))

    # -- the end ------------------------------------------------------------------------------------

    def reload(self, error: DuramenError) -> None:
        """Take no command until all that is in the log by now is known to count or not, and applied."""
        self._stop(error)
        self._refuse(error)
        self._soon(self._load_again)

    def _stop(self, error: DuramenError) -> None:
        self.loaded = self._loading = False
        self._loads += 1
        self._target = self._partition.log.end_offset
        self.unloaded(error)

    def suspend(self, error: DuramenError) -> None:
        """As `reload`, of a state that is another, until `advanced` says where."""
        self._position = -1
        self.reload(error)

    def _load_again(self) -> None:
        self.advanced(self._position, self._failed)

    def end(self, error: DuramenError) -> None:
        """Another node may lead the partition from here on."""
        self._over = error
        self.unloaded(error)
        self._refuse(error)

    def _refuse(self, error: DuramenError) -> None:
        """What waits hears `error`; what may be in the log is not known to be there."""
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


def _committed(base_offset: int, new: list[BatchInput], producer: TransactionProducer | None) -> CommittedBatch:
    records = [
        DecodedRecord(offset, one.timestamp, one.key, one.value, tuple(one.headers))
        for offset, one in enumerate(new, base_offset)
    ]
    return CommittedBatch(records) if producer is None else CommittedBatch(records, producer.id, transactional=True)
