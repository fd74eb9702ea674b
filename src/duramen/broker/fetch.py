"""Fetches: whole batches from several partitions, immediately or once enough bytes are available."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from duramen.base.deadlines import Deadline, Deadlines
from duramen.base.errors import DuramenError, OffsetNotAvailable, OffsetOutOfRange, StorageFailed, StreamNotFound
from duramen.base.metrics import Counter, Metrics
from duramen.base.ports import Clock
from duramen.broker.partition import Partition
from duramen.storage.segment.reader import Blocked, Slice
from duramen.storage.store import Store

__all__ = [
    "FetchCoordinator",
    "FetchResult",
    "FetchSource",
    "Fetcher",
    "LiveFound",
    "LiveReader",
    "LiveWork",
    "PartitionFetch",
]


class LiveFound(NamedTuple):
    """Batches for a reader of a live topic, or none: from a pass that ends at `end`.

    `at_once`: the response must not be delayed.
    """

    batches: bytes | None
    end: int
    at_once: bool = False


class LiveWork(Protocol):
    """Work to do before there is a result."""

    def begin(self, done: Callable[[BaseException | None], None]) -> None:
        """Do it; then look again."""


class LiveReader(Protocol):
    """A reader of a partition of a live topic, for the time of one fetch."""

    @property
    def end(self) -> int:
        """The end of its pass; -1 before the first."""

    def look(self, offset: int, room: int, ready: Callable[[], None], *, now: bool, must: bool) -> LiveFound | LiveWork:
        """The available batches, at most `room` bytes unless it `must` return something.

        If there may be batches soon, `ready` is called then, unless the result is needed `now`. Raises OffsetOutOfRange
        …
        """

    def leave(self) -> None:
        """The fetch is over."""


class FetchSource(ABC):
    """A source that is fetched like a partition and whose batches are built on read; one per fetch."""

    @abstractmethod
    def read(self, offset: int, max_bytes: int) -> "FetchResult":
        """Batches from an offset on, at least one if there is any. Raises like reads of a partition."""

    @abstractmethod
    def enter(self, poke: Callable[["FetchSource"], None]) -> None:
        """Call `poke` once there may be more than at the last read; immediately if there may be already."""

    @abstractmethod
    def leave(self) -> None:
        """The fetch no longer waits."""

    def given(self, size: int) -> int:
        """Count bytes that go to a client; how many ms it is to wait, because a quota is exceeded."""
        del size
        return 0


class PartitionFetch(NamedTuple):
    """The fetch of one partition. `partition` is None if it does not exist; `error` is the reason.

    `live` reads it as a live topic.
    """

    partition: Partition | FetchSource | None
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    error: DuramenError | None = None
    isolation: int = 0  # 1: committed records only
    rack_id: str = ""  # the consumer's rack, if it sent one
    live: LiveReader | None = None


class FetchResult(NamedTuple):
    """The result for one partition: a slice, `made` batches, nothing yet, or an error; and its offsets at that time.

    `aborted` has the producer id and first offset of each aborted transaction in the slice, for read_committed.
    `preferred_replica` is the node to read from, -1: this one.
    """

    slice: Slice | None
    error: DuramenError | None
    high_watermark: int
    start_offset: int
    last_stable_offset: int
    aborted: Sequence[tuple[int, int]] = ()
    preferred_replica: int = -1
    made: bytes | None = None
    """Batches that are not in the log as they are, in place of a slice."""

    @property
    def size(self) -> int:
        """Bytes of records."""
        return len(self.slice or self.made or b"")


def _is_to_come(partition: Partition, offset: int) -> bool:
    """Whether other nodes may have committed records at that offset that this node does not know yet."""
    role = partition.role
    return role is not None and role.latest_offset is None and offset > partition.log.high_watermark


Preferred = Callable[[Partition, str, int], int]
"""The node that serves a consumer of a rack from an offset of a partition; -1: this one (KIP-392)."""

Answer = Callable[[list[FetchResult]], None]

_GONE: Final = FetchResult(None, StreamNotFound("no such partition"), -1, -1, -1)
_new = tuple.__new__  # of a NamedTuple, without the call that its own takes


class FetchCoordinator:
    """Starts fetches, with their shared state."""

    def __init__(
        self, store: Store, clock: Clock, deadlines: Deadlines, metrics: Metrics, preferred: Preferred | None = None
    ) -> None:
        """`preferred` selects the node for a consumer with a rack; None: this node is standalone."""
        self.preferred = preferred
        self.store = store
        self.clock = clock
        self.deadlines = deadlines
        self.waiting: Counter = metrics.counter("duramen_fetches_waiting")

    def fetch(
        self, wanted: Sequence[PartitionFetch], *, min_bytes: int, max_bytes: int, max_wait_ms: int, done: Answer
    ) -> "Fetcher":
        """Fetch from each of `wanted`, in their order, at most `max_bytes` in all but for one first batch.

        `done` is called once: as soon as there are `min_bytes` or an error, or after `max_wait_ms`.
        """
        fetcher = Fetcher(self, wanted, min_bytes, max_bytes, max_wait_ms, done)
        fetcher.start()
        return fetcher


class Fetcher:
    """A fetch under way."""

    __slots__ = (
        "_answer",
        "_blocked",
        "_bytes",
        "_changed",
        "_deadline",
        "_fetches",
        "_found",
        "_max_bytes",
        "_max_wait_ms",
        "_min_bytes",
        "_poked",
        "_registered",
        "_urgent",
        "_wanted",
    )

    def __init__(
        self,
        fetches: FetchCoordinator,
        wanted: Sequence[PartitionFetch],
        min_bytes: int,
        max_bytes: int,
        max_wait_ms: int,
        answer: Answer,
    ) -> None:
        self._fetches = fetches
        self._wanted = wanted
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._max_wait_ms = max_wait_ms
        self._answer: Answer | None = answer
        self._found: list[FetchResult | None] = [None] * len(wanted)
        self._changed: list[int] = list(range(len(wanted)))
        self._bytes = 0
        self._urgent = False  # an error or a timeout: respond with the available records
        self._blocked = False
        self._poked = False
        self._registered: dict[Partition | FetchSource, list[int]] | None = None
        self._deadline: Deadline | None = None

    def start(self) -> None:
        """Look once; answer or wait."""
        self._look()
        if self._answer is not None and self._deadline is None and not self._urgent:
            at_ms = self._fetches.clock.monotonic_ms() + self._max_wait_ms
            self._deadline = self._fetches.deadlines.at(at_ms, self._time_is_up)

    def cancel(self) -> None:
        """The client no longer waits."""
        self._answer = None
        self._leave()

    def _time_is_up(self) -> None:
        self._urgent = True
        self._changed += [
            index for index, one in enumerate(self._wanted) if one.live is not None and not self._has(index)
        ]
        if not self._blocked:
            self._look()

    def _look(self) -> None:
        # A partition may have been heard of more than once while this waited for the disk.
        changed, self._changed = list(dict.fromkeys(self._changed)), []
        for at, index in enumerate(changed):
            blocked = self._plan(index)
            if blocked is not None:
                self._changed = changed[at:]
                self._blocked = True
                if isinstance(blocked, Blocked):
                    self._fetches.store.unblock(blocked, self._unblocked)
                else:
                    blocked.begin(self._unblocked)
                return
        if self._urgent or self._bytes >= self._min_bytes or self._max_wait_ms <= 0:
            self._finish()
        elif self._registered is None:
            self._register()

    def _unblocked(self, error: BaseException | None) -> None:
        self._blocked = False
        if self._answer is None:
            return
        if error is not None:
            index = self._changed.pop(0)
            failed = error if isinstance(error, DuramenError) else StorageFailed(f"reading failed: {error}")
            self._found[index] = self._failed(index, failed)
            self._urgent = True
        self._look()

    def _has(self, index: int) -> bool:
        found = self._found[index]
        return found is not None and (found.made is not None or found.error is not None)

    def _live_ready(self, index: int) -> None:
        """A reader of a live topic is to look again."""
        if self._answer is None or self._has(index):
            return
        self._changed.append(index)
        if not self._poked:
            self._poked = True
            self._fetches.store.soon(self._look_again)

    def _plan_live(self, index: int, partition: Partition, offset: int, room: int, live: LiveReader) -> LiveWork | None:
        if self._has(index):
            return None
        if room <= 0 and self._bytes:
            found = LiveFound(None, live.end)
        else:
            looked = live.look(
                offset,
                max(room, 1),
                partial(self._live_ready, index),
                now=self._urgent or self._max_wait_ms <= 0,
                must=not self._bytes,
            )
            if not isinstance(looked, LiveFound):
                return looked
            found = looked
        self._urgent = self._urgent or found.at_once
        self._bytes += len(found.batches or b"")
        self._found[index] = FetchResult(
            None, None, found.end, partition.log.start_offset, found.end, made=found.batches
        )
        return None

    def _plan(self, index: int) -> Blocked | LiveWork | None:
        """Find the present result of one partition; or the work to wait for first."""
        wanted = self._wanted[index]
        partition = wanted.partition
        if isinstance(partition, Partition):  # a plain class: quicker to ask than an abstract one
            if wanted.live is not None or not partition.is_read(wanted.offset, wanted.leader_epoch):
                return self._plan_read(index, wanted, partition)
            log = partition.log
            ends = wanted.offset, log.start_offset, log.last_stable_offset
            self._found[index] = _new(FetchResult, (None, None, *ends, (), -1, None))
        elif partition is not None:
            self._read(index, wanted, partition)
        else:
            self._found[index] = _GONE if wanted.error is None else _GONE._replace(error=wanted.error)
            self._urgent = True
        return None

    def _plan_read(self, index: int, wanted: PartitionFetch, partition: Partition) -> Blocked | LiveWork | None:
        if partition.stream.deleted:
            self._found[index] = _GONE if wanted.error is None else _GONE._replace(error=wanted.error)
            self._urgent = True
            return None
        room = min(wanted.max_bytes, self._max_bytes - self._bytes)
        log = partition.log
        slice_: Slice | None = None
        try:
            if partition.role is not None:
                partition.role.check_holds()
            partition.check_epoch(wanted.leader_epoch)
            if wanted.live is not None:
                return self._plan_live(index, partition, wanted.offset, room, wanted.live)
            elsewhere = self._elsewhere(partition, wanted)
            if elsewhere is not None:
                self._found[index] = elsewhere
                self._urgent = True
                return None
            if room > 0 or self._bytes == 0:
                plan = log.plan_read(wanted.offset, max(room, 1), committed=wanted.isolation == 1)
                if isinstance(plan, Blocked):
                    return plan
                slice_ = plan
        except DuramenError as error:
            known = isinstance(error, OffsetOutOfRange) and _is_to_come(partition, wanted.offset)
            self._found[index] = self._failed(index, OffsetNotAvailable(str(error)) if known else error)
            self._urgent = True
            return None
        if slice_ is not None:
            size = len(slice_)
            if size > room and self._bytes:
                slice_ = None
            else:
                self._bytes += size
        aborted: Sequence[tuple[int, int]] = ()
        if slice_ is not None and wanted.isolation == 1 and log.transactions.aborted:
            end = slice_.next_offset if slice_.next_offset >= 0 else log.last_stable_offset
            aborted = [row[:2] for row in log.transactions.aborted_within(wanted.offset, end)]
        self._found[index] = FetchResult(
            slice_, None, log.high_watermark, log.start_offset, log.last_stable_offset, aborted
        )
        return None

    def _read(self, index: int, wanted: PartitionFetch, source: FetchSource) -> None:
        room = min(wanted.max_bytes, self._max_bytes - self._bytes)
        try:
            found = source.read(wanted.offset, max(room, 1))
        except DuramenError as error:
            self._found[index] = _GONE._replace(error=error)
            self._urgent = True
            return
        if found.size > room and self._bytes:
            found = found._replace(made=None)
        self._bytes += found.size
        self._found[index] = found

    def _elsewhere(self, partition: Partition, wanted: PartitionFetch) -> FetchResult | None:
        """The response to a client that should read from another node, if so."""
        preferred = self._fetches.preferred
        if preferred is None or not wanted.rack_id:
            return None
        node_id = preferred(partition, wanted.rack_id, wanted.offset)
        if node_id < 0:
            return None
        log = partition.log
        return FetchResult(
            None, None, log.high_watermark, log.start_offset, log.last_stable_offset, preferred_replica=node_id
        )

    def _failed(self, index: int, error: DuramenError) -> FetchResult:
        partition = self._wanted[index].partition
        if partition is None or isinstance(partition, FetchSource):
            return _GONE._replace(error=error)
        log = partition.log
        return FetchResult(None, error, log.high_watermark, log.start_offset, log.last_stable_offset)

    def _register(self) -> None:
        registered: dict[Partition | FetchSource, list[int]] = {}
        for index, wanted in enumerate(self._wanted):
            if wanted.partition is not None:
                registered.setdefault(wanted.partition, []).append(index)
        self._registered = registered
        self._fetches.waiting.value += 1
        poke = self._poke
        for partition in registered:
            if isinstance(partition, Partition):
                partition.waiting[poke] = None
            else:
                partition.enter(poke)

    def _poke(self, partition: Partition | FetchSource) -> None:
        """The high watermark of a partition has risen, or it is gone; or a source may have more."""
        if self._registered is None:
            return
        for index in self._registered[partition]:
            found = self._found[index]
            if self._wanted[index].live is not None and self._has(index):
                continue
            if found is not None and found.size:
                self._bytes -= found.size
                self._found[index] = None
            self._changed.append(index)
        if not self._poked:
            # Later: one sync raises the high watermarks of many partitions.
            self._poked = True
            self._fetches.store.after_release(self._look_again)

    def _look_again(self) -> None:
        self._poked = False
        if self._answer is not None and not self._blocked:
            self._look()

    def _leave(self) -> None:
        for wanted in self._wanted:
            if wanted.live is not None:
                wanted.live.leave()
            source = wanted.partition
            if source is not None and not isinstance(source, Partition):
                source.leave()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._registered is not None:
            poke = self._poke
            for partition in self._registered:
                if isinstance(partition, Partition):
                    partition.waiting.pop(poke, None)
            self._registered = None
            self._fetches.waiting.value -= 1

    def _finish(self) -> None:
        answer, self._answer = self._answer, None
        self._leave()
        if answer is not None:
            answer([found if found is not None else _GONE for found in self._found])
