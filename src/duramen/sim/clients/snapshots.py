"""Clients that read keyed streams: whole snapshots, and changes since earlier ones.

A client's records, and its place in an unfinished snapshot, survive the node.
"""

from functools import partial
from typing import Final

from duramen.base.errors import (
    CheckpointInvalid,
    DuramenError,
    NodeStopping,
    SnapshotNotReached,
    SnapshotStartOver,
    SnapshotTooOld,
    StreamNotFound,
    StreamNotKeyed,
)
from duramen.broker.partition import Partition
from duramen.broker.views.running_view import RunningView
from duramen.codec.batch import batches, records
from duramen.keyed.view import VisibleRecords
from duramen.sim.checkers.keyed import KeyedHistory, ShownRecord
from duramen.sim.clients.access import FetchedData
from duramen.sim.clients.shared import Clients
from duramen.sim.clients.whole import WholeReaders
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["SnapshotReaders"]

_CACHES: Final = 3  # of each partition
_PATIENCE_US: Final = 5_000_000
_LAST_PATIENCE_US: Final = 300_000_000
_WINDOWS: Final = (8, 64, 1 << 23)
_READS: Final = (1, 300, 1 << 20)


class _Reading:
    """A snapshot on its way to a cache: that at `at`, or with `since` the changes."""

    def __init__(self, at: int, since: int | None, opened_ms: int, lives: int, window: int) -> None:
        self.at = at
        self.since = since
        self.opened_ms = opened_ms
        self.lives = lives
        self.window = window
        self.offset = 0
        self.shown: dict[bytes, ShownRecord] = {}
        self.visible = VisibleRecords(0, bytearray())
        self.end = 0

    def takes(self, offset: int) -> bool:
        """Whether a record is shown."""
        place = offset - self.visible.base
        bits = self.visible.bits
        return (
            self.offset <= offset < self.end
            and 0 <= place < 8 * len(bits)
            and bool(bits[place >> 3] >> (place & 7) & 1)
        )


class _Cache:
    """A client's copy of a partition: of each key that is there the offset of its record, as of `at`."""

    def __init__(self, history: KeyedHistory) -> None:
        self.history = history
        self.lives = history.lives
        self.at = -1
        self.opened_ms = 0
        self.state: dict[bytes, int] = {}
        self.reading: _Reading | None = None
        self.busy = False


class SnapshotReaders:
    """All of them."""

    def __init__(self, clients: Clients, whole: WholeReaders) -> None:
        """`whole` sees where transactions count."""
        self._clients = clients
        self._whole = whole
        self._caches: list[_Cache] = []
        self._everything = False

    def begin(self, *, everything: bool) -> None:
        """A process has started; with `everything` nothing fails any more, and all clients read on to the end."""
        self._everything = everything
        there = dict(self._clients.histories())
        for history in there:
            if isinstance(history, KeyedHistory):
                keyed = self._clients.broker.streams.get(history.name).keyed
                history.lives += history.keyed is not keyed
                history.keyed = keyed
        self._caches = [cache for cache in self._caches if self._outlives(cache, there.get(cache.history))]
        if everything:
            for history in there:
                if isinstance(history, KeyedHistory) and history.keyed:
                    self._caches.append(_Cache(history))
            for cache in self._caches:
                if cache.history.keyed:
                    self._go(cache)

    def _outlives(self, cache: _Cache, partition: Partition | None) -> bool:
        """Whether a client has nothing that a loss of power has taken back, as it may where durability is not sync."""
        cache.busy = False
        if partition is None or cache.history.damaged:
            return False
        end = partition.log.high_watermark
        if cache.reading is not None and cache.reading.at > end:
            cache.reading = None
        return cache.at <= end

    def read(self) -> None:
        """One of them does its next step."""
        clients, chance = self._clients, self._clients.chance
        found = [history for history, _ in clients.histories() if isinstance(history, KeyedHistory) and history.keyed]
        if not found:
            return
        history = chance.choice(found)
        caches = [cache for cache in self._caches if cache.history is history]
        if len(caches) < _CACHES and chance.random() < 0.3:
            caches = [_Cache(history)]
            self._caches += caches
        idle = [cache for cache in caches if not cache.busy]
        if idle:
            self._go(chance.choice(idle))

    def _view(self, history: KeyedHistory) -> RunningView | None:
        partition = self._clients.partition(history)
        if partition is None:
            return None
        stream = self._clients.broker.streams.get(history.name)
        try:
            return self._clients.broker.views.get(stream, partition.index)
        except (StreamNotKeyed, SnapshotNotReached, NodeStopping) as error:
            if isinstance(error, StreamNotKeyed) and history.keyed and self._clients.is_there(history):
                raise BrokenPromise(f"{history} is keyed, and has no view") from None
            return None

    # -- opening ------------------------------------------------------------------------------------

    def _go(self, cache: _Cache) -> None:
        """Continue the snapshot of the process before, or open one."""
        view = self._view(cache.history)
        if view is None:
            return
        at, committed = view.bounds.position, view.partition.log.high_watermark
        if at > committed:
            raise BrokenPromise(f"{cache.history}: the newest snapshot is at {at}, and committed is {committed}")
        cache.busy = True
        if cache.reading is not None:
            self._show(cache, cache.reading)
        else:
            self._open(cache, view)

    def _open(self, cache: _Cache, view: RunningView) -> None:
        clients, wanted = self._clients, view.partition.log.high_watermark
        opened = clients.answer(partial(self._opened, cache, view, wanted, cache.history.acknowledged_offset))
        waits = True

        def ended() -> None:
            nonlocal waits
            if waits:
                waits = False
                forget()
                opened()

        forget = view.when_reached(wanted, ended)
        clients.worker.after(_LAST_PATIENCE_US if self._everything else _PATIENCE_US, ended)

    def _opened(self, cache: _Cache, view: RunningView, wanted: int, acknowledged: int) -> None:
        clients, chance, history = self._clients, self._clients.chance, cache.history
        if self._view(history) is not view or not history.keyed:
            cache.busy = False
            return
        reached = view.bounds.position >= wanted
        bounds, now_ms = view.bounds, clients.clock.wall_ms()
        at = bounds.position
        if not reached and self._everything and not history.damaged:
            raise BrokenPromise(f"{history}: nothing fails any more, and the view stays at {at}")
        if reached and at < acknowledged and not history.damaged:
            raise BrokenPromise(f"{history}: {acknowledged} was acknowledged before the snapshot at {at} was opened")
        if at < bounds.s0:
            cache.busy = False  # it is being loaded, or built
            return
        history.visible(at, view.partition.log.durability)
        lives, draw = history.lives, 0.0 if self._everything else chance.random()
        if draw > 0.9 and cache.at >= 0:
            at, since, opened_ms, lives = cache.at, None, cache.opened_ms, cache.lives
        elif draw > 0.7:
            at, since, opened_ms = chance.randint(bounds.s0, at), None, -1
        else:
            since, opened_ms = (cache.at if 0 <= cache.at <= at and draw < 0.5 else None), now_ms
        clients.trace("%s: the snapshot at %d is opened, since %s", history, at, since)
        cache.reading = _Reading(at, since, opened_ms, lives, chance.choice(_WINDOWS))
        self._show(cache, cache.reading)

    # -- reading ------------------------------------------------------------------------------------

    def _show(self, cache: _Cache, reading: _Reading) -> None:
        """Request the visible records from its offset on."""
        view = self._view(cache.history)
        if view is None:
            cache.busy = False
            return
        reading.offset = max(reading.offset, view.partition.log.start_offset)
        first, reading.end = 0, reading.at
        if reading.since is None:
            first = reading.offset // reading.window * reading.window
            reading.end = min(reading.at, first + reading.window)
        answer = self._clients.answer(partial(self._shown, cache, reading))
        view.shown(reading.at, reading.since, first, reading.end, answer)

    def _shown(self, cache: _Cache, reading: _Reading, result: VisibleRecords | BaseException) -> None:
        if isinstance(result, BaseException):
            self._refused(cache, reading, result)
            return
        reading.visible = result
        reading.offset = max(reading.offset, min(result.base, reading.end))
        self._fetch(cache, reading)

    def _fetch(self, cache: _Cache, reading: _Reading) -> None:
        partition = self._clients.partition(cache.history)
        if partition is None:
            cache.busy = False
        elif reading.offset >= reading.at:
            self._finish(cache, reading)
        elif reading.offset >= reading.end:
            self._show(cache, reading)
        else:
            answer = self._clients.answer(partial(self._fetched, cache, reading))
            size = self._clients.chance.choice(_READS)
            self._clients.access.fetch(partition, reading.offset, size, answer, committed=False)

    def _fetched(self, cache: _Cache, reading: _Reading, found: FetchedData) -> None:
        history = cache.history
        if found.error is not None:
            self._refused(cache, reading, found.error)
            return
        if not found.data:
            raise BrokenPromise(
                f"{history}: a snapshot is at {reading.at}, and nothing can be read from {reading.offset} on"
            )
        following = history.read(reading.offset, found.data)
        view = memoryview(found.data)
        for position, head in batches(view):
            for record in records(view[position : position + head.size]):
                if reading.takes(record.offset):
                    self._take(cache, reading, record.key or b"", ShownRecord(record.offset, record.value is None))
        reading.offset = min(following, reading.end)
        self._clients.worker.soon(self._clients.answer(partial(self._fetch, cache, reading)))

    def _take(self, cache: _Cache, reading: _Reading, key: bytes, record: ShownRecord) -> None:
        before = reading.shown.get(key)
        if before is not None:
            raise BrokenPromise(
                f"{cache.history}: the snapshot at {reading.at} has a key twice, at {before.offset} and {record.offset}"
            )
        reading.shown[key] = record

    def _finish(self, cache: _Cache, reading: _Reading) -> None:
        """The read records are complete if it could still be opened."""
        view = self._view(cache.history)
        if view is None:
            cache.busy = False
            return
        try:
            if reading.since is None:
                view.bounds.check_snapshot(reading.at)
            else:
                view.bounds.check_changes(reading.since, reading.at)
        except DuramenError as error:
            self._refused(cache, reading, error)
            return
        self._whole.follow(cache.history, reading.at, partial(self._check, cache, reading))

    def _check(self, cache: _Cache, reading: _Reading, seen: bool) -> None:
        """It must equal the snapshot by definition; `seen`: if the offsets at which all its records count are known."""
        history = cache.history
        cache.reading, cache.busy = None, False
        if not seen:
            cache.at = -1
            return
        self._clients.trace("%s: the snapshot at %d is read, %d records", history, reading.at, len(reading.shown))
        history.check_snapshot(reading.at, reading.shown, changes=reading.since is not None)
        state = dict(cache.state) if reading.since is not None else {}
        for key, record in reading.shown.items():
            if record.tombstone:
                state.pop(key, None)
            else:
                state[key] = record.offset
        history.check_state(reading.at, state)
        cache.at, cache.state = reading.at, state
        cache.opened_ms, cache.lives = reading.opened_ms, reading.lives

    # -- refusals -----------------------------------------------------------------------------------

    def _refused(self, cache: _Cache, reading: _Reading, error: BaseException) -> None:
        """It is tried again another time, or given up."""
        clients, history = self._clients, cache.history
        cache.busy = False
        clients.trace("%s: the snapshot at %d: %s", history, reading.at, type(error).__name__)
        if clients.partition(history) is None or isinstance(error, NodeStopping | StreamNotFound):
            return
        match error:
            case SnapshotTooOld():
                if reading.opened_ms >= 0:
                    history.check_age(reading.opened_ms, reading.lives, clients.clock.wall_ms())
                cache.reading = None
            case SnapshotStartOver():
                cache.at, cache.reading = -1, None
            case SnapshotNotReached() | CheckpointInvalid():
                if self._everything and not history.damaged:
                    self._go(cache)  # it is being built again
            case _:
                cache.reading = None
                faults = clients.faults
                if not (history.damaged or faults.failed or isinstance(error, ConnectionAbortedError)):
                    raise BrokenPromise(f"{history}: the snapshot at {reading.at} cannot be read: {error!r}")
