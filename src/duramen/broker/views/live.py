"""Live topics: consumers read keyed streams without superseded records, in passes with a fixed end each."""

from collections.abc import Callable
from functools import partial
from typing import Final

from duramen.base.errors import OffsetNotAvailable, OffsetOutOfRange, SnapshotNotReached, SnapshotTooOld
from duramen.base.ports import Clock
from duramen.broker.fetch import LiveFound, LiveReader, LiveWork
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.broker.views.batch_reader import ReadResult, read_batches
from duramen.broker.views.running_view import RunningView
from duramen.broker.views.shown import LiveRecords
from duramen.keyed.live_batches import empty_batches, live_batches
from duramen.keyed.live_passes import LivePage, LivePass, LivePasses, LiveWindow
from duramen.keyed.native import kernel
from duramen.keyed.view import next_shown
from duramen.storage.store import Store

__all__ = ["LiveTopics"]

_WINDOW: Final = 1 << 20  # offsets whose bits are worked out at once
_PAGE_BYTES: Final = 1 << 20
_READ_BYTES: Final = 1 << 20
_MOST_READS: Final = 16  # of a page


class LiveTopics:
    """The readers of a node's live topics."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._passes = LivePasses()

    def reader(
        self,
        stream: Stream,
        partition: Partition,
        view: RunningView | None,
        connection: object,
        client_id: str,
        offset: int,
    ) -> LiveReader:
        """A pass over the partition for a client on a connection."""
        mine = self._passes.find(
            (stream.id, partition.index), connection, client_id, offset, partition.log.start_offset,
            self._clock.monotonic_ms(), stream.config.integer("snapshot.lease.ms"),
        )  # fmt: skip
        return _Reader(self._store, view, partition, mine, offset)

    def oldest(self, stream: Stream, partition: int) -> int | None:
        """Tombstones from this offset on are kept for readers; None: there are none."""
        lease_ms = stream.config.integer("snapshot.lease.ms")
        return self._passes.oldest((stream.id, partition), self._clock.monotonic_ms(), lease_ms)


class _Reader:
    """A `LiveReader`."""

    def __init__(
        self, store: Store, view: RunningView | None, partition: Partition, mine: LivePass, offset: int
    ) -> None:
        self._store = store
        self._view = view
        self._partition = partition
        self._pass = mine
        self._waits: Callable[[], None] | None = None
        mine.fetched(offset)

    @property
    def end(self) -> int:
        """See `LiveReader`."""
        return self._pass.end

    def look(self, offset: int, room: int, ready: Callable[[], None], *, now: bool, must: bool) -> LiveFound | LiveWork:
        """See `LiveReader`."""
        mine, log, view = self._pass, self._partition.log, self._view
        self._partition.check_leads()
        if not log.start_offset <= offset <= log.high_watermark:
            raise OffsetOutOfRange(f"offset {offset} is not between {log.start_offset} and {log.high_watermark}")
        if view is None or view.bounds.position < 0:
            if now or view is None:
                raise OffsetNotAvailable("the view of the keyed stream is being built")
            self._wait(0, ready)
            return LiveFound(None, mine.end)
        if view.facts.position > log.high_watermark:
            # After a start the view has more than is known to be committed; the high watermark rises soon.
            if now:
                raise OffsetNotAvailable("the high watermark is not known yet")
            return LiveFound(None, mine.end)
        mine.check(view.bounds, log.start_offset)
        page = mine.page
        if page is not None:
            if len(page.batches) > room and not must:
                return LiveFound(None, mine.end)
            mine.served(page)
            return LiveFound(page.batches, mine.end)
        if 0 <= offset < mine.end:
            return _Page(self._store, view, mine, offset, min(room, _PAGE_BYTES))
        if offset == mine.end and not mine.told:
            mine.told = True
            return LiveFound(None, mine.end, at_once=True)
        return self._next_pass(view, offset, room, ready, now=now)

    def _next_pass(
        self, view: RunningView, offset: int, room: int, ready: Callable[[], None], *, now: bool
    ) -> LiveFound | LiveWork:
        """The next pass ends behind all that is committed by now, unless the client does not wait so long."""
        mine, log = self._pass, self._partition.log
        if mine.reaching < 0:
            mine.reaching = log.high_watermark
        position = view.bounds.position
        if position > mine.seen and (now or position >= mine.reaching):
            return _Page(self._store, view, mine, offset, min(room, _PAGE_BYTES), anew=True)
        if position < log.high_watermark:
            mine.reaching = log.high_watermark if position >= mine.reaching else mine.reaching
            self._wait(mine.reaching, ready)
        return LiveFound(None, mine.end)

    def _wait(self, position: int, ready: Callable[[], None]) -> None:
        self.leave()
        if self._view is not None:
            self._waits = self._view.when_reached(position, ready)

    def leave(self) -> None:
        """See `LiveReader`."""
        waits, self._waits = self._waits, None
        if waits is not None:
            waits()


class _Page:
    """A `LiveWork` that builds the next page of a pass; a restarted pass first gets its end."""

    def __init__(
        self, store: Store, view: RunningView, mine: LivePass, offset: int, size: int, *, anew: bool = False
    ) -> None:
        self._store = store
        self._view = view
        self._pass = mine
        self._offset = self._reached = self._at = offset
        self._size = size
        self._anew = anew
        self._pieces: list[bytes] = []
        self._got = self._reads = 0
        self._done: Callable[[BaseException | None], None] = lambda _: None

    def begin(self, done: Callable[[BaseException | None], None]) -> None:
        """See `LiveWork`."""
        self._done = done
        window = self._pass.window
        kept = window is not None and window.end == self._pass.end >= self._view.kept_from
        if window is not None and kept and window.first <= self._offset < window.stop and not self._anew:
            self._read(window)
            return
        end = -1 if self._anew else self._pass.end
        self._view.live_records(end, self._offset, _WINDOW, self._shown)

    def _shown(self, result: LiveRecords | BaseException) -> None:
        if isinstance(result, BaseException):
            late = isinstance(result, SnapshotNotReached | SnapshotTooOld)
            self._done(OffsetNotAvailable(str(result)) if late else result)
            return
        mine = self._pass
        if self._anew or result.end != mine.end:
            mine.ends(result.end, result.position)
        if self._offset >= result.end:
            self._done(None)
            return
        mine.window = LiveWindow(result.end, self._offset, result.visible, result.stop)
        self._read(mine.window)

    def _read(self, window: LiveWindow) -> None:
        self._at = min(max(next_shown(window.visible, self._at), self._at), window.stop)
        if self._at >= window.stop or self._got >= self._size or self._reads >= _MOST_READS:
            self._end(window)
            return
        self._reads += 1
        log = self._view.partition.log
        read_batches(self._store, log, self._at, partial(self._take, window), _READ_BYTES)

    def _take(self, window: LiveWindow, data: ReadResult) -> None:
        if not isinstance(data, bytes):
            self._done(data)
        elif not data:
            self._at = window.stop
            self._end(window)
        else:
            job = partial(
                live_batches, kernel(), data, window.visible, self._at, window.stop, self._size - self._got
            )  # fmt: skip
            self._store.run(job, partial(self._made, window))

    def _made(self, window: LiveWindow, result: tuple[bytes, int, int] | BaseException) -> None:
        if isinstance(result, BaseException):
            self._done(result)
            return
        made, reached, at = result
        if made:
            self._pieces.append(made)
            self._got += len(made)
            self._reached = reached
        self._at = at
        self._read(window)

    def _end(self, window: LiveWindow) -> None:
        mine = self._pass
        if self._view.kept_from > window.end:
            mine.lose_end()  # compaction may have dropped records of the page: the pass continues with a newer end
            self._done(None)
            return
        following = min(max(self._at, self._reached), window.stop)
        epoch = self._view.partition.log.takeovers.epoch_at(max(self._offset, following - 1))
        self._pieces.append(empty_batches(self._reached, following, epoch))
        mine.page = LivePage(self._offset, following, b"".join(self._pieces))
        if following >= window.stop:
            mine.window = None
        self._done(None)
