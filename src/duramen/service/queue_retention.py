"""Retention of queues: trimmed before they are read, and those that nobody reads some at a time."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.catalogue_queues import QUEUE_RETENTION
from duramen.base.deadlines import Deadline, Deadlines
from duramen.base.errors import CoordinatorLoading, DuramenError
from duramen.base.ports import Clock, StateRows
from duramen.broker.streams import BrokerStreams, Stream
from duramen.coordinators.queue.shard import QueueShard
from duramen.coordinators.runtime.runtime import Runtime
from duramen.metadata.features import MetadataFeature
from duramen.metadata.state import ControllerState
from duramen.queues.machine import Trim
from duramen.queues.names import Queue
from duramen.queues.retention import ALL, Look, Retention
from duramen.storage.store import Store

__all__ = ["QueueRetention", "RetentionParts", "retention_of"]

_AT_ONCE: Final = 50
"""Queues that are looked at in one turn."""
_LOOKS: Final = 1_000
"""So often one request looks at queues, at some thousand entries each time, before it gets what is there."""
_SWEEP_MS: Final = 1_000


def retention_of(space: Stream) -> Retention:
    """What is kept of each queue of a space."""
    return Retention(*(space.config.integer(name) for name in QUEUE_RETENTION))


class RetentionParts(NamedTuple):
    """What retention works with; `alone`: the node is no part of a cluster."""

    streams: BrokerStreams
    coordinators: Runtime
    store: Store
    clock: Clock
    deadlines: Deadlines
    metadata_state: Callable[[], ControllerState]
    alone: bool


class QueueRetention:
    """Has queues trimmed that this node leads."""

    def __init__(self, parts: RetentionParts) -> None:
        self._parts = parts
        self._spaces: dict[Stream, Retention] = {}
        self._sweeping: set[tuple[Stream, int]] = set()
        self._tick: Deadline | None = None
        parts.streams.listeners.append(self._changed)
        for stream in parts.streams:
            self._changed(stream)

    def _changed(self, stream: Stream) -> None:
        kept = ALL if stream.deleted or not stream.shards else retention_of(stream)
        if kept == ALL:
            self._spaces.pop(stream, None)
        else:
            self._spaces[stream] = kept
            if self._tick is None:
                self._tick = self._later(_SWEEP_MS, self._sweep)

    def _later(self, delay_ms: int, action: Callable[[], None]) -> Deadline:
        return self._parts.deadlines.at(self._parts.clock.monotonic_ms() + delay_ms, action)

    def _kept(self, space: Stream) -> Retention:
        """What is kept, where nodes of an older version take no harm of records that trim queues."""
        parts = self._parts
        too_old = not parts.alone and parts.metadata_state().feature_level < MetadataFeature.SPACE_NUMBERS
        return ALL if too_old else self._spaces.get(space, ALL)

    # -- before queues are read ---------------------------------------------------------------------

    def settle(self, space: Stream, shard: int, queues: Iterable[Queue], then: Callable[[], None]) -> None:
        """Have queues of a shard that is led here trimmed, then go on: also where that cannot be stored now."""
        kept = self._kept(space)
        if kept == ALL:
            then()
        else:
            _Settling(self._parts, space, shard, kept, queues, then).begin()

    def look(self, space: Stream, shard: QueueShard, rows: StateRows, queue: Queue) -> bool:
        """Whether a queue has to be settled before it is read."""
        kept = self._kept(space)
        return kept != ALL and shard.counts.look(rows, queue.hash, kept, self._parts.clock.wall_ms()) is not Look.KEEPS

    # -- queues that nobody reads -------------------------------------------------------------------

    def _sweep(self) -> None:
        self._tick = self._later(_SWEEP_MS, self._sweep) if self._spaces else None
        for space in list(self._spaces):
            for partition in space.partitions:
                place = space, partition.index
                if partition.leads and place not in self._sweeping and self._kept(space) != ALL:
                    self._sweeping.add(place)
                    self._step(space, partition.index)

    def _step(self, space: Stream, shard: int) -> None:
        kept = self._kept(space)

        def query(found: QueueShard, rows: StateRows) -> list[Queue]:
            return found.sweep.step(rows, kept, self._parts.clock.wall_ms())

        def found(answer: object) -> None:
            ended = partial(self._sweeping.discard, (space, shard))
            if isinstance(answer, list) and answer:
                self.settle(space, shard, answer, ended)
            else:
                ended()

        self._parts.coordinators.read(space.name, shard, query, found)


class _Settling:
    """Queues of a shard that are looked at one after the other, and trimmed where there is more than is kept."""

    def __init__(
        self, parts: RetentionParts, space: Stream, shard: int, kept: Retention, queues: Iterable[Queue],
        then: Callable[[], None],
    ) -> None:  # fmt: skip
        self._parts = parts
        self._space = space
        self._shard = shard
        self._kept = kept
        self._queues = deque(queues)
        self._then = then
        self._looks = 0

    def begin(self) -> None:
        """Look at the next queues."""
        self._looks += 1
        if not self._queues or self._looks > _LOOKS:
            self._then()
            return
        self._parts.coordinators.read(
            self._space.name, self._shard, self._look, self._looked,
            at_least=self._space.partition(self._shard).log.high_watermark,
        )  # fmt: skip

    def _look(self, shard: QueueShard, rows: StateRows) -> Sequence[Queue]:
        """Those of the next queues that are to be trimmed; one that is not counted to its end is looked at again."""
        trims, now_ms = list[Queue](), self._parts.clock.wall_ms()
        for _ in range(min(_AT_ONCE, len(self._queues))):
            queue = self._queues.popleft()
            found = shard.counts.look(rows, queue.hash, self._kept, now_ms)
            if found is Look.TRIMS:
                trims.append(queue)
            elif found is Look.COUNTS:
                self._queues.appendleft(queue)
                break
        return trims

    def _looked(self, answer: object) -> None:
        if not isinstance(answer, list):
            self._then()  # whoever reads then is told why it cannot
        elif answer:
            self._trim(answer)
        else:
            self._parts.store.soon(self.begin)

    def _trim(self, queues: Sequence[Queue]) -> None:
        left = len(queues)

        def trimmed(queue: Queue, answer: object) -> None:
            nonlocal left
            left -= 1
            if not isinstance(answer, DuramenError) or isinstance(answer, CoordinatorLoading):
                self._queues.append(queue)  # there may be more
            if not left:
                self.begin()

        for queue in queues:
            self._parts.coordinators.submit(
                self._space.name, self._shard, Trim(queue, self._kept), partial(trimmed, queue)
            )
