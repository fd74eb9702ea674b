"""Retention of queues: they are trimmed before reads, and unread ones a few at a time.

Policies of the inventory set the limits of queues that are topics of it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.catalogue.queues import QUEUE_RETENTION
from duramen.base.countdown import Countdown
from duramen.base.deadlines import Deadline, Deadlines
from duramen.base.errors import CoordinatorLoading, DuramenError
from duramen.base.ports import Clock, StateRows
from duramen.broker.streams import BrokerStreams, Stream
from duramen.coordinators.inventory.retention import InventoryRetention
from duramen.coordinators.queue.shard import QueueShard
from duramen.coordinators.runtime.runtime import Runtime
from duramen.coordinators.runtime.shard import ShardAnswer
from duramen.metadata.features import MetadataFeature
from duramen.metadata.state import ControllerState
from duramen.queues.machine import Trim
from duramen.queues.names import Queue
from duramen.queues.owned_sweep import kept_of
from duramen.queues.owners import owned_queue
from duramen.queues.retention import ALL, Look, Retention
from duramen.service.leftover_records import LeftoverRecords
from duramen.storage.store import Store

__all__ = ["QueueRetention", "RetentionParts", "retention_of"]

_AT_ONCE: Final = 50
"""Queues that are looked at in one turn."""
_LOOKS: Final = 1_000
"""So often one request looks at queues, at some thousand entries each time, before it gets what is there."""
_SWEEP_MS: Final = 1_000

_KeptOf = Callable[[StateRows, Queue], Retention]


def retention_of(space: Stream) -> Retention:
    """The retention limits of each queue of a space."""
    return Retention(*(space.config.integer(name) for name in QUEUE_RETENTION))


class RetentionParts(NamedTuple):
    """Dependencies of retention; `alone`: the node is standalone."""

    streams: BrokerStreams
    coordinators: Runtime
    store: Store
    clock: Clock
    deadlines: Deadlines
    metadata_state: Callable[[], ControllerState]
    alone: bool
    inventory: InventoryRetention
    leftovers: LeftoverRecords


class QueueRetention:
    """Has queues trimmed that this node leads."""

    def __init__(self, parts: RetentionParts) -> None:
        self._parts = parts
        self._spaces: dict[Stream, Retention] = {}
        self._owned: dict[Stream, None] = {}
        self._sweeping: set[tuple[Stream, int]] = set()
        self._tick: Deadline | None = None
        parts.streams.listeners.append(self._changed)
        for stream in parts.streams:
            self._changed(stream)

    def _changed(self, stream: Stream) -> None:
        kept = ALL if stream.deleted or not stream.shards else retention_of(stream)
        if stream.owned and not stream.deleted:
            self._owned[stream] = None
        elif stream.owned:
            self._owned.pop(stream, None)
        elif kept == ALL:
            self._spaces.pop(stream, None)
        else:
            self._spaces[stream] = kept
        if (self._spaces or self._owned) and self._tick is None:
            self._tick = self._later(_SWEEP_MS, self._sweep)

    def _later(self, delay_ms: int, action: Callable[[], None]) -> Deadline:
        return self._parts.deadlines.at(self._parts.clock.monotonic_ms() + delay_ms, action)

    def _kept(self, space: Stream) -> _KeptOf | None:
        """What is kept of queues of a space; None: everything.

        So it is where nodes of an older version would take harm of records that trim queues.
        """
        parts = self._parts
        if not parts.alone and parts.metadata_state().feature_level < MetadataFeature.SPACE_NUMBERS:
            return None
        if space in self._owned:
            return self._kept_by_owner
        kept = self._spaces.get(space)
        return None if kept is None else lambda _, __: kept

    def _kept_by_owner(self, rows: StateRows, queue: Queue) -> Retention:
        owned, kept = owned_queue(rows, queue.hash), self._parts.inventory.kept()
        return ALL if owned is None or kept is None else kept_of(owned, kept)

    # -- before queues are read ---------------------------------------------------------------------

    def settle(self, space: Stream, shard: int, queues: Iterable[Queue], then: Callable[[], None]) -> None:
        """Trim queues of a shard led here, then continue, also if the trim cannot be stored now."""
        kept = self._kept(space)
        if kept is None:
            then()
        else:
            _Settling(self._parts, space, shard, kept, queues, lambda _: then()).begin()

    def look(self, space: Stream, shard: QueueShard, rows: StateRows, queue: Queue) -> bool:
        """Whether a queue has to be settled before it is read."""
        kept = self._kept(space)
        if kept is None:
            return False
        found = kept(rows, queue)
        return (
            found != ALL and shard.counts.look(rows, queue.hash, found, self._parts.clock.wall_ms()) is not Look.KEEPS
        )

    # -- queues that nobody reads -------------------------------------------------------------------

    def _sweep(self) -> None:
        self._tick = None
        if self._spaces or self._owned:
            self._tick = self._later(_SWEEP_MS, self._sweep)
        for space in list(self._spaces):
            self._sweep_space(space, self._step)
        if any(partition.leads for space in self._owned for partition in space.partitions):
            self._parts.inventory.refresh(lambda _: self._sweep_owned())

    def _sweep_owned(self) -> None:
        for space in list(self._owned):
            self._sweep_space(space, self._step_owned)
            self._parts.leftovers.sweep(space)

    def _sweep_space(self, space: Stream, step: Callable[[Stream, int], None]) -> None:
        for partition in space.partitions:
            place = space, partition.index
            if partition.leads and place not in self._sweeping and self._kept(space) is not None:
                self._sweeping.add(place)
                step(*place)

    def _step(self, space: Stream, shard: int) -> None:
        kept, ended = self._spaces.get(space, ALL), partial(self._sweeping.discard, (space, shard))

        def query(found: QueueShard, rows: StateRows) -> list[Queue]:
            return found.sweep.step(rows, kept, self._parts.clock.wall_ms())

        def found(answer: object) -> None:
            if isinstance(answer, list) and answer:
                self.settle(space, shard, answer, ended)
            else:
                ended()

        self._parts.coordinators.read(space.name, shard, query, found)

    def _step_owned(self, space: Stream, shard: int) -> None:
        """As `_step`; it goes on at once while something was trimmed."""
        kept = self._parts.inventory.kept()

        def query(found: QueueShard, rows: StateRows) -> list[tuple[Queue, Retention]]:
            return [] if kept is None else found.owned.step(rows, kept, self._parts.clock.wall_ms())

        def found(answer: object) -> None:
            if isinstance(answer, list) and answer:
                queues = dict(answer)
                _Settling(self._parts, space, shard, lambda _, queue: queues[queue], queues, settled).begin()
            else:
                self._sweeping.discard((space, shard))

        def settled(trimmed: int) -> None:
            if trimmed:
                self._parts.store.soon(partial(self._step_owned, space, shard))
            else:
                self._sweeping.discard((space, shard))

        self._parts.coordinators.read(space.name, shard, query, found)


class _Settling:
    """Queues of a shard that are examined one after the other, and trimmed if they exceed the limits."""

    def __init__(
        self, parts: RetentionParts, space: Stream, shard: int, kept: _KeptOf, queues: Iterable[Queue],
        then: Callable[[int], None],
    ) -> None:  # fmt: skip
        """`then` gets how many times something was trimmed."""
        self._parts = parts
        self._space = space
        self._shard = shard
        self._kept = kept
        self._queues = deque(queues)
        self._then = then
        self._looks = 0
        self._trimmed = 0

    def begin(self) -> None:
        """Examine the next queues."""
        self._looks += 1
        if not self._queues or self._looks > _LOOKS:
            self._then(self._trimmed)
            return
        self._parts.coordinators.read(
            self._space.name, self._shard, self._look, self._looked,
            at_least=self._space.partition(self._shard).log.high_watermark,
        )  # fmt: skip

    def _look(self, shard: QueueShard, rows: StateRows) -> Sequence[Trim]:
        """Trim those of the next queues that have too much; one that is not counted to its end is looked at again."""
        trims, now_ms = list[Trim](), self._parts.clock.wall_ms()
        for _ in range(min(_AT_ONCE, len(self._queues))):
            queue = self._queues.popleft()
            kept = self._kept(rows, queue)
            found = Look.KEEPS if kept == ALL else shard.counts.look(rows, queue.hash, kept, now_ms)
            if found is Look.TRIMS:
                trims.append(Trim(queue, kept))
            elif found is Look.COUNTS:
                self._queues.appendleft(queue)
                break
        return trims

    def _looked(self, answer: object) -> None:
        if not isinstance(answer, list):
            self._then(0)  # whoever reads then is told why it cannot
        elif answer:
            self._trim(answer)
        else:
            self._parts.store.soon(self.begin)

    def _trim(self, trims: Sequence[Trim]) -> None:
        parts = Countdown(self.begin, len(trims))

        def trimmed(queue: Queue, answer: object) -> None:
            self._trimmed += isinstance(answer, ShardAnswer) and answer.first_offset >= 0
            if not isinstance(answer, DuramenError) or isinstance(answer, CoordinatorLoading):
                self._queues.append(queue)  # there may be more
            parts.count_down()

        for trim in trims:
            self._parts.coordinators.submit(self._space.name, self._shard, trim, partial(trimmed, trim.queue))
