"""A share partition: one group's state of one partition, its locks, and the storage of its state.

It lives at the leader of the partition, during its term. Consumers' acknowledgements are stored first, by the leader of
the partition of `__share_group_state`, and take effect once they are durable there.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from duramen.base.deadlines import Deadline, Deadlines
from duramen.base.errors import (
    DuramenError,
    FencedLeaderEpoch,
    NotLeader,
    RequestInvalid,
    ShareGroupUnknown,
    StreamNotFound,
)
from duramen.base.metrics import Counter, Metrics
from duramen.base.ports import Clock
from duramen.broker.partition import EARLIEST, LATEST, Partition
from duramen.codec.batch import CONTROL, Header, batches
from duramen.coordinators.group.share_configs import ShareConfig
from duramen.coordinators.share.persister import SharePersister, StateWriter
from duramen.coordinators.share.topics import SharedQueue
from duramen.delivery.window import AcknowledgeType, Acquired, Decision, State, Window
from duramen.groups.share_records import UNKNOWN_START, ShareKey, ShareState
from duramen.queues.topics import SharedRead

__all__ = [
    "ACCEPT",
    "GAP",
    "REJECT",
    "RELEASE",
    "RENEW",
    "Acknowledged",
    "AcquiredRecords",
    "ShareCounts",
    "SharePartition",
]

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""Acknowledgement types, in Kafka's numbers; a gap is an offset without a record."""

_OUTCOMES: Final = {
    GAP: AcknowledgeType.REJECT,
    ACCEPT: AcknowledgeType.ACCEPT,
    RELEASE: AcknowledgeType.RELEASE,
    REJECT: AcknowledgeType.REJECT,
}

_MOST_ENTRIES: Final = 1000
"""Entries of a queue that are acquired in one turn of the event loop."""

_WHAT: Final = ("acquired", "accepted", "released", "rejected", "expired")
_UNCOUNTED: Final = Counter()

Done = Callable[[DuramenError | None], None]


class Acknowledged(NamedTuple):
    """The acknowledgement of offsets `first` to `last`: one type for all of them, or one for each."""

    first: int
    last: int
    types: Sequence[int]


class ShareCounts:
    """Counters of deliveries and acknowledgements."""

    __slots__ = ("_said", "acquired", "expired")

    def __init__(self, metrics: Metrics) -> None:
        counters = {what: metrics.counter("duramen_share_records_total", what) for what in _WHAT}
        self.acquired, self.expired = counters["acquired"], counters["expired"]
        self._said = {
            ACCEPT: counters["accepted"], RELEASE: counters["released"], REJECT: counters["rejected"],
        }  # fmt: skip

    def of(self, type_: int) -> Counter:
        """The counter of an acknowledgement type; gaps and renewed locks are not counted."""
        return self._said.get(type_, _UNCOUNTED)


class AcquiredRecords(NamedTuple):
    """The result of a fetch: batches, and their acquired offsets; `size` is the number of these."""

    records: bytes
    acquired: list[Acquired]
    size: int


class SharePartition:
    """A share partition in use. `waiting` are callbacks for newly available records.

    A `queue` as a topic is read from the rows of its shard, which `partition` is.
    """

    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        queue: SharedQueue | None,
        persister: SharePersister,
        clock: Clock,
        deadlines: Deadlines,
        config: Callable[[], ShareConfig],
        counts: ShareCounts,
        ended: Callable[["SharePartition"], None],
    ) -> None:
        """`ended` is called when the share partition must no longer be used."""
        self.key = key
        self.partition = partition
        self.queue = queue
        self.waiting: dict[Callable[[], None], None] = {}
        self.used_ms = clock.monotonic_ms()
        self._persister = persister
        self._clock = clock
        self._deadlines = deadlines
        self._config = config
        self._counts = counts
        self._ended = ended
        self._window: Window | None = None
        self._kept = ShareState()
        self._writer: StateWriter | None = None
        self._open = 0  # number of writes in progress
        self._stored_start = UNKNOWN_START  # all before it is durably completed
        self._loading: list[Done] = []
        self._timer: Deadline | None = None
        self.gone = False
        self._why: DuramenError | None = None

    # -- loading ------------------------------------------------------------------------------------

    def load(self, done: Done) -> None:
        """Load the stored state, or choose the start; calls `done` once the window exists and is durable."""
        self.used_ms = self._clock.monotonic_ms()
        if self._window is not None or self.gone:
            done(self.why_gone() if self.gone else None)
            return
        self._loading.append(done)
        if len(self._loading) > 1:
            return
        leader_epoch = self.partition.leader_epoch

        def read(kept: ShareState | DuramenError) -> None:
            if self.gone or isinstance(kept, DuramenError):
                self._loaded(kept if isinstance(kept, DuramenError) else self.why_gone())
                return
            self._writer = self._persister.writer(self.key, kept, leader_epoch)
            if kept.start_offset != UNKNOWN_START:
                self._begin(kept)
            else:
                self._find_start(kept)

        self._persister.read(self.key, leader_epoch, read)

    def _find_start(self, kept: ShareState) -> None:
        source = self.queue or self.partition

        def found(offset: int, _: int, error: DuramenError | OSError | None) -> None:
            log = self.partition.log
            if error is not None:
                self._loaded(error if isinstance(error, DuramenError) else DuramenError(str(error)))
                return
            if self.queue is None:
                start = max(offset, log.start_offset) if offset >= 0 else log.high_watermark
            elif offset >= 0:
                start = offset
            else:
                source.find_offset(LATEST, found)
                return

            def stored(failed: DuramenError | None) -> None:
                if failed is None and not self.gone:
                    self._begin(kept._replace(start_offset=start))
                else:
                    self._loaded(failed or self.why_gone())

            self._store(start, (), stored)

        reset = self._config().reset
        if reset.since_ms is not None:
            source.find_offset(max(0, self._clock.wall_ms() - reset.since_ms), found)
        else:
            source.find_offset(LATEST if reset.latest else EARLIEST, found)

    def _begin(self, kept: ShareState) -> None:
        config = self._config()
        self._kept = kept
        self._stored_start = kept.start_offset
        self._window = Window(
            kept.start_offset, kept.states,
            most_deliveries=config.most_deliveries, most_in_flight=config.most_in_flight,
            sparse=self.queue is not None,
        )  # fmt: skip
        self._loaded(None)

    def _loaded(self, error: DuramenError | None) -> None:
        loading, self._loading = self._loading, []
        if isinstance(error, FencedLeaderEpoch):
            error = NotLeader(str(error))
        if error is not None:
            self.close(error)
        for done in loading:
            done(error)

    @property
    def window(self) -> Window:
        """The window; call `load` first."""
        if self._window is None:
            raise AssertionError("a share partition is loaded before it is used")
        return self._window

    @property
    def loaded(self) -> bool:
        """Whether the window exists."""
        return self._window is not None

    def state(self) -> ShareState:
        """The present state, without acquired records."""
        window = self.window
        return self._kept._replace(start_offset=window.start, states=tuple(window.states()))

    @property
    def idle(self) -> bool:
        """Whether it can be unloaded without loss until its next use."""
        held = self._window is not None and self._window.next_deadline_ms() is not None
        return not (held or self.waiting or self._open or self._loading)

    @property
    def delivers(self) -> bool:
        """Whether records may be delivered: not if another leader may have delivered them already."""
        return not (self.gone or self.partition.deposed)

    # -- acquiring ----------------------------------------------------------------------------------

    def next_offset(self) -> int | None:
        """The first offset that may have records to acquire; None if nothing may be acquired now."""
        config, window = self._config(), self.window
        self.used_ms = self._clock.monotonic_ms()
        window.limit(config.most_deliveries, config.most_in_flight)
        if self.queue is None:  # entries of a queue outlast the log
            window.advance(self.partition.log.start_offset)
        return window.next_position()

    def acquire(
        self, offset: int, data: bytes, owner: str, most: int, batch_size: int, *, strict: bool,
        dropped: Callable[[Header], bool],
    ) -> AcquiredRecords:  # fmt: skip
        """Acquire for `owner` from batches read from `offset` on: about `most` records, not more if `strict`.

        Without `strict` a batch is acquired as a whole (KIP-932); the result has ranges of about `batch_size`. Batches
        for which `dropped` is true have no records for consumers: they count as completed.
        """
        window = self.window
        deadline_ms = self._clock.monotonic_ms() + self._config().lock_ms
        acquired: list[Acquired] = []
        begin = end = size = 0
        expected = offset
        for at, head in batches(data):
            first, last = max(head.base_offset, offset), head.next_offset - 1
            if last < offset:
                continue
            if size >= most:
                break
            if first > expected:
                window.skip(expected, first - 1)
            expected = last + 1
            if head.attributes & CONTROL or dropped(head):
                window.skip(first, last)
                continue
            taken = window.acquire(first, last, owner, deadline_ms, most - size if strict else None)
            if not taken:
                continue
            begin, end = (at if not acquired else begin), at + head.size
            size += sum(piece.last - piece.first + 1 for piece in taken)
            _add(acquired, taken, batch_size)
        return self._acquired(data[begin:end], acquired, size, deadline_ms)

    def acquire_entries(self, owner: str, most: int, max_bytes: int, batch_size: int) -> AcquiredRecords:
        """Acquire entries of the queue for `owner`: at most `most` (bounded), and `max_bytes` but for the first.

        Their batches are made from the rows in the same turn. Offsets without an entry count as completed.
        """
        window, offset = self.window, self.next_offset()
        deadline_ms = self._clock.monotonic_ms() + self._config().lock_ms
        acquired: list[Acquired] = []
        if offset is None:
            return AcquiredRecords(b"", acquired, 0)
        found = self._read_queue(offset, min(most, _MOST_ENTRIES), max_bytes)
        size = 0
        for first, last in _adjacent(found.offsets):
            self._skip_to(offset, first)
            offset = last + 1
            taken = window.acquire(first, last, owner, deadline_ms, offset - first)
            count = sum(piece.last - piece.first + 1 for piece in taken)
            size += count
            _add(acquired, taken, batch_size)
            if count < offset - first:  # too many are in flight
                break
        else:
            self._skip_to(offset, found.end)
        return self._acquired(found.batches if acquired else b"", acquired, size, deadline_ms)

    def available_bytes(self, offset: int, least_bytes: int) -> int:
        """The size of batches with entries of the queue that may be acquired from an offset on, up to about a size."""
        found = self._read_queue(offset, least_bytes, least_bytes)  # an entry has a byte or more
        if not found.offsets:
            self._skip_to(offset, found.end)
        return len(found.batches)

    def _read_queue(self, offset: int, most: int, max_bytes: int) -> SharedRead:
        assert self.queue is not None
        return self.queue.read_shared(offset, self.window.next_free, most, max_bytes)

    def _skip_to(self, offset: int, end: int) -> None:
        if offset < end:
            self.window.skip(offset, end - 1)

    def _acquired(self, data: bytes, acquired: list[Acquired], size: int, deadline_ms: int) -> AcquiredRecords:
        if acquired:
            self._look_at(deadline_ms)
        stream = self.partition.stream
        stream.bytes_out.value += len(data)
        stream.records_out.value += size
        self._counts.acquired.value += size
        return AcquiredRecords(data, acquired, size)

    # -- deciding -----------------------------------------------------------------------------------

    def acknowledge(self, owner: str, batches_: Sequence[Acknowledged], done: Done) -> None:
        """Apply the acknowledgements of `owner`, atomically; calls `done` once durable, or with RecordStateInvalid."""
        self.used_ms = self._clock.monotonic_ms()
        window = self.window
        deadline_ms = self._clock.monotonic_ms() + self._config().lock_ms
        spoken = [piece for batch in batches_ for piece in _pieces(batch)]
        try:
            # As in Apache Kafka, with nothing in flight the state of the records is invalid.
            if spoken and window.in_flight and spoken[-1][1] >= window.end:
                raise RequestInvalid(f"nothing was acquired from offset {window.end} on")
            for first, last, type_ in spoken:
                if type_ == RENEW:
                    window.renew(owner, first, last, deadline_ms)
            decision = window.decide(
                owner, [(first, last, _OUTCOMES[type_]) for first, last, type_ in spoken if type_ != RENEW]
            )
        except DuramenError as error:
            done(error)
            return

        def kept(error: DuramenError | None) -> None:
            if error is None:
                for first, last, type_ in spoken:
                    self._counts.of(type_).value += last - first + 1
            done(error)

        if not decision and any(last >= self._stored_start for _, last, type_ in spoken if type_ != RENEW):
            # It is completed already, but may not be stored.
            self._store(window.start, (), kept)
        else:
            self._keep(decision, kept)

    def release(self, owner: str, done: Done) -> None:
        """Release every record that `owner` has acquired."""
        self._keep(self.window.release_owner(owner), done)

    def _keep(self, decision: Decision, done: Done) -> None:
        def kept(error: DuramenError | None) -> None:
            if error is None:
                self.window.settle(decision)
            else:
                self.window.revert(decision)
                self._look_at(self._clock.monotonic_ms())
            self._wake()
            done(error)

        if decision:
            self._write(decision, kept)
        else:
            done(None)

    def _write(self, decision: Decision, done: Done) -> None:
        start = self.window.start
        states = [state._replace(first=max(state.first, start)) for state in decision if state.last >= start]
        self._store(start, states, done)

    def _store(self, start: int, states: Sequence[State], done: Done) -> None:
        if self.gone or self._writer is None:
            done(self.why_gone())
            return

        def stored(error: DuramenError | None) -> None:
            self._open -= 1
            if error is None:
                self._stored_start = max(start, self._stored_start)
            if isinstance(error, FencedLeaderEpoch | ShareGroupUnknown):
                # Another node leads, or the state was reset: the memory here differs from the stored state.
                error = NotLeader(str(error))
                self.close(error)
            done(error)

        self._open += 1
        spoken = tuple((state.first, state.last, int(state.phase), state.deliveries) for state in states)
        self._writer.store((start, spoken), stored)

    # -- locks --------------------------------------------------------------------------------------

    def _look_at(self, at_ms: int) -> None:
        """Check locks at that time or earlier: an unneeded check is cheaper than counting locks."""
        current = self._timer
        if self.gone or (current is not None and current.action is not None and current.at_ms <= at_ms):
            return
        if current is not None:
            current.cancel()
        self._timer = self._deadlines.at(at_ms, self._expire)

    def _expire(self) -> None:
        decision = self.window.expire(self._clock.monotonic_ms())
        if decision and not self.gone:
            self._counts.expired.value += sum(state.last - state.first + 1 for state in decision)
            # Durability is not needed: a restart or another leader makes them available too.
            self.window.settle(decision)
            self._write(decision, lambda _: None)
            self._wake()
        next_ms = self.window.next_deadline_ms()
        if next_ms is not None:
            self._look_at(next_ms)

    def why_gone(self) -> DuramenError:
        """The error for requests that still use it."""
        if self.partition.stream.deleted:
            return StreamNotFound("no such partition")
        try:
            self.partition.check_leads()
        except DuramenError as error:
            return error
        return self._why or ShareGroupUnknown(f"group {self.key.group} no longer reads this partition")

    def close(self, why: DuramenError | None = None) -> None:
        """The memory differs from the stored state, or the partition is deleted: deliver nothing more.

        Waiting requests get `why`; None: the group may no longer have a state for the partition.
        """
        if self.gone:
            return
        self.gone, self._why = True, why
        if self._timer is not None:
            self._timer.cancel()
        self._ended(self)
        self._wake()

    def _wake(self) -> None:
        for wake in list(self.waiting):
            wake()


def _pieces(batch: Acknowledged) -> list[tuple[int, int, int]]:
    """(first, last, type) of adjacent offsets with the same type."""
    if len(batch.types) == 1:
        return [(batch.first, batch.last, batch.types[0])]
    pieces = []
    for type_, offsets in groupby(enumerate(batch.types, batch.first), key=lambda spoken: spoken[1]):
        found = [offset for offset, _ in offsets]
        pieces.append((found[0], found[-1], type_))
    return pieces


def _adjacent(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of adjacent offsets."""
    at = 0
    for end in range(1, len(offsets) + 1):
        if end == len(offsets) or offsets[end] > offsets[end - 1] + 1:
            yield offsets[at], offsets[end - 1]
            at = end


def _add(acquired: list[Acquired], taken: Sequence[Acquired], batch_size: int) -> None:
    for piece in taken:
        before = acquired[-1] if acquired else None
        if (
            before is not None
            and before.last == piece.first - 1
            and before.deliveries == piece.deliveries
            and before.last - before.first + 1 < batch_size
        ):
            acquired[-1] = before._replace(last=piece.last)
        else:
            acquired.append(piece)
