"""The shards of the inventory on this node: their commands, rows and positions."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from duramen.base.deadlines import Deadlines
from duramen.base.errors import CoordinatorLoading, DuramenError
from duramen.base.ports import Clock, StateRows
from duramen.broker.streams import BrokerStreams
from duramen.coordinators.inventory.shard import (
    DIRECTORY_SHARD,
    INVENTORY_STREAM,
    QUEUE_SPACES,
    InventoryShard,
    ShardCommand,
)
from duramen.coordinators.runtime.runtime import Runtime
from duramen.coordinators.runtime.shard import ShardAnswer
from duramen.inventory.directory import Directory
from duramen.inventory.ids import TopicKey, topic_id, topic_id_bytes
from duramen.inventory.names import shard_of
from duramen.inventory.reading import InventoryRows
from duramen.inventory.steps import ChangeStep, StepsTogether, StepSubjects, subjects_of
from duramen.queues.owners import OwnRetention
from duramen.storage.log.log import Log

__all__ = ["Done", "DropRecords", "InventoryQueues", "InventoryShards", "OwnRecords"]

T = TypeVar("T")

OwnRecords = Callable[[UUID, int, OwnRetention | None, Callable[[Any], None]], None]
"""Sets the namespace and the own retention of a topic's records, by the topic's lasting id."""

DropRecords = Callable[[UUID, Callable[[Any], None]], None]
"""Deletes the records of a deleted topic, by the topic's lasting id."""

Done = Callable[[Any], None]
"""Gets the response, or the error."""

_STEPS_AT_ONCE: Final = 500  # before other work can run: some milliseconds
_PATIENCE_MS: Final = 5_000
_AGAIN_MS: Final = 20
_TRIES: Final = 10


class _WaitingSteps(NamedTuple):
    """Steps that wait for a shard's present batch, and their subjects."""

    steps: Sequence[ChangeStep]
    subjects: StepSubjects
    done: Callable[[Sequence[Any]], None]


class _Owning(NamedTuple):
    """Topics that have moved to a namespace; `done` gets the index of one and its response."""

    keys: Sequence[TopicKey]
    namespace: int
    done: Callable[[int, Any], None]


class InventoryQueues:
    """The queue space with the records of topics that have a durability."""

    def __init__(self, streams: BrokerStreams, durability: str) -> None:
        self._streams = streams
        self._name = QUEUE_SPACES[durability]

    @property
    def ready(self) -> bool:
        """Whether the queue space exists."""
        return self._streams.find(self._name) is not None


class _Patient(Generic[T]):
    """Takes a response; sends the request again a little later while the shard is loading."""

    # A class, because a recursive closure would be a reference cycle for the garbage collector, one per command.
    __slots__ = ("_ask", "_done", "_shards", "_until_ms")

    def __init__(
        self, shards: "InventoryShards", ask: Callable[[Callable[[T], None]], None], done: Callable[[T], None],
        until_ms: int,
    ) -> None:  # fmt: skip
        self._shards = shards
        self._ask = ask
        self._done = done
        self._until_ms = until_ms

    def __call__(self, answer: T) -> None:
        if isinstance(answer, CoordinatorLoading) and self._shards.goes_on(self._until_ms):
            self._shards.later(_AGAIN_MS, self._again)
        else:
            self._done(answer)

    def _again(self) -> None:
        self._ask(self)


class InventoryShards:
    """All shards of the inventory, on this node. Before the first tenant is created there are none."""

    def __init__(self, streams: BrokerStreams, runtime: Runtime, clock: Clock, deadlines: Deadlines) -> None:
        self._streams = streams
        self.queues = {durability: InventoryQueues(streams, durability) for durability in QUEUE_SPACES}
        self._runtime = runtime
        self._clock = clock
        self._deadlines = deadlines
        self._steps: defaultdict[int, list[_WaitingSteps]] = defaultdict(list)
        self._busy = set[int]()
        self._owning = list[_Owning]()
        self.own_records: OwnRecords = lambda _, __, ___, done: done(None)
        self.drop_records: DropRecords = lambda _, done: done(None)
        self.have_records: Callable[[Sequence[bytes]], Sequence[bool]] = lambda lasting_ids: [True] * len(lasting_ids)
        """Which topics may have records, by their lasting ids; without those accepted in this turn."""

    alone = True
    """Whether this node has all shards."""

    @property
    def ready(self) -> bool:
        """Whether the stream exists."""
        return self._streams.find(INVENTORY_STREAM) is not None

    @property
    def count(self) -> int:
        """The number of shards."""
        stream = self._streams.find(INVENTORY_STREAM)
        return 0 if stream is None else len(stream.partitions)

    @property
    def inventory_id(self) -> UUID:
        """The id of the inventory, from which topic ids are made."""
        return self._streams.get(INVENTORY_STREAM).id

    def shard_of(self, namespace: int, name: bytes) -> int:
        """The shard of a name."""
        return shard_of(namespace, name, self.count)

    def submit(self, shard: int, command: ShardCommand, done: Done) -> None:
        """`done` gets the response once the command's records are durable and in the rows, or an error.

        The command is sent again while the shard is loading: CoordinatorLoading means that it had no effect.
        """
        if isinstance(command, ChangeStep):
            self.submit_steps(shard, (command,), lambda answers: done(answers[0]))
        else:
            self._submit(shard, command, done)

    def submit_steps(self, shard: int, steps: Sequence[ChangeStep], done: Callable[[Sequence[Any]], None]) -> None:
        """`done` gets the response to each step, or its refusal. No two steps may concern the same name or topic."""
        self._steps[shard].append(_WaitingSteps(steps, subjects_of(steps), done))
        if shard not in self._busy:
            self._take_steps(shard)

    def _submit(self, shard: int, command: ShardCommand, done: Done) -> None:
        def answered(answer: ShardAnswer | DuramenError) -> None:
            done(answer.response if isinstance(answer, ShardAnswer) else answer)

        self._patiently(partial(self._runtime.submit, INVENTORY_STREAM, shard, command), answered)

    def _take_steps(self, shard: int) -> None:
        """Submit the steps that arrived during the previous batch, together."""
        waiting, self._steps[shard] = self._steps[shard], []
        taken, steps, subjects = list[_WaitingSteps](), list[ChangeStep](), StepSubjects(set(), set())
        for one in waiting:
            full = bool(steps) and len(steps) + len(one.steps) > _STEPS_AT_ONCE
            if full or subjects.share(one.subjects):
                self._steps[shard].append(one)
            else:
                subjects.add(one.subjects)
                steps += one.steps
                taken.append(one)
        self._busy.add(shard)

        def answered(answer: Sequence[Any] | DuramenError) -> None:
            answers = [answer] * len(steps) if isinstance(answer, DuramenError) else answer
            at = 0
            for one in taken:
                one.done(answers[at : at + len(one.steps)])  # the callback may submit its next steps
                at += len(one.steps)
            self._busy.discard(shard)
            if self._steps[shard]:
                self._take_steps(shard)

        self._submit(shard, StepsTogether(steps, subjects), answered)

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Run an action after a delay."""
        self._deadlines.at(self._clock.monotonic_ms() + delay_ms, action)

    def beside(self, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run a job off the event loop."""
        self._runtime.beside(job, done)

    def read(self, query: Callable[[], T], done: Callable[[T | DuramenError], None]) -> None:
        """`done` gets the result of `query`, which runs again while shards are loading.

        It sees the rows of all shards as of one moment; so it waits for writes if there are some while it runs.
        """
        self._patiently(partial(self._read_together, query), done)

    def _read_together(self, query: Callable[[], T], answered: Callable[[T | DuramenError], None]) -> None:
        found, as_one = self._runtime.together(INVENTORY_STREAM, query)
        if as_one:
            answered(found)
        else:
            self._runtime.when_quiet(INVENTORY_STREAM, partial(self._read_together, query, answered))

    def at_once(self, query: Callable[[], T]) -> T:
        """The result of `query`. Raises as `query`.

        It runs again if rows are written meanwhile, a limited number of times.
        """
        found, _ = self._runtime.together(INVENTORY_STREAM, query, _TRIES)
        if isinstance(found, DuramenError):
            raise found
        return found

    def as_of(self) -> str | None:
        """In a query: its position; None if rows may be newer, because writes are in flight."""
        return self.position() if self._runtime.is_quiet(INVENTORY_STREAM) else None

    def _patiently(self, ask: Callable[[Callable[[T], None]], None], done: Callable[[T], None]) -> None:
        ask(_Patient(self, ask, done, self._clock.monotonic_ms() + _PATIENCE_MS))

    def goes_on(self, until_ms: int) -> bool:
        """Whether the deadline has not passed yet."""
        return self._clock.monotonic_ms() < until_ms

    # -- queries ------------------------------------------------------------------------------------

    def rows(self) -> InventoryRows:
        """The rows of all shards. Raises CoordinatorLoading, NotCoordinator."""
        directory = self.directory()
        return InventoryRows(self.each_rows(), lambda namespace: directory.namespace_by_id(namespace) is not None)

    def directory(self) -> Directory:
        """Tenants and namespaces. Raises CoordinatorLoading, NotCoordinator."""
        if not self.ready:
            return Directory()
        self._runtime.check(INVENTORY_STREAM, DIRECTORY_SHARD)
        shard: InventoryShard | None = self._runtime.loaded(INVENTORY_STREAM, DIRECTORY_SHARD)
        if shard is None:
            raise CoordinatorLoading("tenants are still being loaded")
        return shard.directory

    def place(self, shard: int) -> tuple[int, int]:
        """The known position of a shard: its leader epoch, and the first offset that is not applied."""
        return 0, self.applied_offset(shard)

    def loaded(self) -> Iterator[InventoryShard]:
        """The shards that this node has loaded."""
        for index in range(self.count):
            shard: InventoryShard | None = self._runtime.loaded(INVENTORY_STREAM, index)
            if shard is not None:
                yield shard

    def known_directory(self) -> Directory | None:
        """Tenants and namespaces as known on this node, without a request; None if unknown."""
        try:
            return self.directory()
        except DuramenError:
            return None

    def own(self, key: TopicKey, namespace: int, own: OwnRetention | None, done: Done) -> None:
        """Set the namespace of a topic's records; `done` gets an error unless that is confirmed."""
        self.own_records(topic_id(self.inventory_id, key), namespace, own, done)

    def drop(self, key: TopicKey, done: Done) -> None:
        """Delete the records of a deleted topic; `done` gets an error unless that is confirmed."""
        self.drop_records(topic_id(self.inventory_id, key), done)

    def own_all(self, keys: Sequence[TopicKey], namespace: int, done: Callable[[int, Any], None]) -> None:
        """Like `own` for many topics, on a node with all shards; `done` gets the index of a topic and its response.

        Topics without records are told nothing: their first record has the namespace that they have then.
        """
        if not self._owning:
            self._runtime.soon(self._own_some)
        self._owning.append(_Owning(keys, namespace, done))

    def _own_some(self) -> None:
        """Look for the records of all these topics together: that costs less than a look for each move."""
        owning, self._owning = self._owning, []
        self._runtime.soon(partial(self._look, owning))  # records with the old namespace were accepted in this turn

    def _look(self, owning: Sequence[_Owning]) -> None:
        inventory_id = self.inventory_id
        ids = [topic_id_bytes(inventory_id, key) for one in owning for key in one.keys]
        try:
            have = iter(self.have_records(ids))
        except DuramenError:
            have = iter([True] * len(ids))  # the rows cannot be read now
        for keys, namespace, done in owning:
            for at, (key, has) in enumerate(zip(keys, islice(have, len(keys)), strict=True)):
                if has:
                    self.own(key, namespace, None, partial(done, at))
                else:
                    done(at, None)

    def log(self, shard: int) -> Log:
        """The log with the events of a shard."""
        return self._streams.get(INVENTORY_STREAM).partitions[shard].log

    def applied_offset(self, shard: int) -> int:
        """The first offset that is not applied to a shard's rows; -1 if they cannot be read now."""
        return self._runtime.applied_offset(INVENTORY_STREAM, shard)

    def position(self) -> str:
        """The positions of the rows of all shards: the first offsets that are not applied."""
        return ",".join(str(self._runtime.applied_offset(INVENTORY_STREAM, shard)) for shard in range(self.count))

    def see(self, places: Sequence[tuple[int, int]], done: Done) -> None:
        """`done` gets None once no later read has a state older than these positions of the shards, or an error.

        A standalone node has no older state.
        """
        del places
        done(None)

    def each_rows(self) -> list[StateRows]:
        """The rows of each shard. Raises like `rows`."""
        shards = range(self.count)
        for shard in shards:
            self._runtime.check(INVENTORY_STREAM, shard)
        return [self._runtime.rows(INVENTORY_STREAM, shard) for shard in shards]
