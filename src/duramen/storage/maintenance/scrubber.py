"""The scrubber: reads synced data of segments at a limited rate and checks every CRC.

It repeats rounds through all logs, segment by segment, in steps in the worker's `read` lane, and then through `others`,
which repair themselves. Damage is quarantined as if a reader had found it; a damaged index is rebuilt from its segment.
It keeps no state over a restart. It leaves the page cache as it found it.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from duramen.base.deadlines import Deadline, Deadlines
from duramen.base.metrics import Metrics
from duramen.base.ports import Buffer, Clock, File, FileSystem, Worker
from duramen.storage.io import write_all
from duramen.storage.log.log import Log
from duramen.storage.maintenance.segment_rewrite import holds
from duramen.storage.segment.blocks import ANY_OFFSET
from duramen.storage.segment.checks import ExpectedSegment, SegmentCheck, read_index
from duramen.storage.segment.damage import Damage, DamageCause
from duramen.storage.segment.index import BLOCK_BYTES, IndexHeader, SegmentIndex, closed_entries
from duramen.storage.segment.quarantine import Quarantine
from duramen.storage.segment.reader import open_index
from duramen.storage.segment.segment import Segment

__all__ = ["Scrubbed", "Scrubber"]

_STEP_BYTES: Final = 4 * BLOCK_BYTES
_FIRST_MS: Final = 60_000  # after the start, when there is enough other work


class Scrubbed(Protocol):
    """Other data that is checked at the end of each round."""

    def step(self, done: Callable[[int], None]) -> None:
        """Check the next part; `done` gets the number of bytes, 0 at the end."""


class _Quiet:
    """A file whose reads leave the page cache as it was."""

    def __init__(self, file: File) -> None:
        self._file = file

    def read(self, position: int, size: int) -> Buffer:
        cached = self._file.read_cached(position, size)
        if cached is not None:
            return cached
        data = self._file.read(position, size)
        self._file.forget(position, size)
        return data


class _SegmentScrub:
    """One segment being checked. `step` is a job; `read_bytes` is the size of its last read."""

    def __init__(self, files: FileSystem, log: Log, segment: Segment, expected: ExpectedSegment) -> None:
        self.log = log
        self.segment = segment
        self.replaced = segment.replaced
        self.expected = expected
        self.check: SegmentCheck | None = None
        self.read_bytes = 0
        self.rebuilt = False
        self._files = files
        self._index = segment.index

    def step(self) -> bool:
        """Check the next part; returns whether any is left. Blocking. Raises OSError if the file does not exist."""
        if self.check is None:
            file = self._files.open(self.segment.path + ".log", read_only=True)
            index = self._index if self._index is not None else self._read_index()
            self.rebuilt = index is None
            self.check = SegmentCheck(_Quiet(file), self.expected, index, steady=True)
        before = self.check.position
        more = self.check.step(_STEP_BYTES)
        self.read_bytes = self.check.position - before
        return more

    def _read_index(self) -> SegmentIndex | None:
        # Not kept in the segment: the indexes of all segments together may exceed memory.
        entries = closed_entries(self.expected.size)
        index = read_index(self._files, self.segment.path, self.segment.base_offset, entries, entries - 1)
        return index if index is not None and index.last().position == self.expected.size else None


class Scrubber:
    """Checks the logs of a store in rounds, once started."""

    def __init__(
        self,
        files: FileSystem,
        worker: Worker,
        clock: Clock,
        deadlines: Deadlines,
        quarantine: Quarantine,
        logs: Callable[[], Iterable[Log]],
        metrics: Metrics,
    ) -> None:
        """`logs` returns all logs."""
        self._files = files
        self._worker = worker
        self._clock = clock
        self._deadlines = deadlines
        self._quarantine = quarantine
        self._logs = logs
        self._bytes_total = metrics.counter("duramen_scrubbed_bytes_total")
        self._rounds_total = metrics.counter("duramen_scrub_rounds_total")
        self._bytes_per_second = 0
        self._interval_ms = 0
        self._began_ms = 0
        self._deadline: Deadline | None = None
        self._round: list[Log] = []  # logs left in this round, the next one last
        self._after = -1  # the base offset of the segment of that log that was checked last
        self._running = False
        self._others: list[Scrubbed] = []  # left in this round
        self.others: list[Callable[[], Iterable[Scrubbed]]] = []
        """Sources of other data to check, each called at the end of a round."""

    def start(self, bytes_per_second: int, interval_ms: int) -> None:
        """Read at most that many bytes per second, and start a round at most once per `interval_ms`; 0 bytes: never."""
        self._bytes_per_second, self._interval_ms = bytes_per_second, interval_ms
        if bytes_per_second > 0:
            self._running = True
            self._later(min(_FIRST_MS, interval_ms), self._begin)

    def stop(self) -> None:
        """Stop checking."""
        self._running = False
        if self._deadline is not None:
            self._deadline.cancel()

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        if self._running:
            self._deadline = self._deadlines.at(self._clock.monotonic_ms() + delay_ms, action)

    def _begin(self) -> None:
        self._began_ms = self._clock.monotonic_ms()
        self._round = sorted(self._logs(), key=lambda log: log.id, reverse=True)
        self._after = -1
        self._go_on()

    def _go_on_with_others(self) -> None:
        """Check the other data; deleted ones report that nothing is left."""
        if not self._running:
            return
        if not self._others:
            self._end()
            return
        self._others[-1].step(self._stepped_other)

    def _stepped_other(self, size: int) -> None:
        self._bytes_total.value += size
        if not size:
            self._others.pop()
        self._later(size * 1000 // self._bytes_per_second + 1, self._go_on_with_others)

    def _end(self) -> None:
        self._rounds_total.value += 1
        self._later(max(1, self._began_ms + self._interval_ms - self._clock.monotonic_ms()), self._begin)

    # -- which is next ------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if not self._running:
            return
        found = self._next()
        if found is None:
            self._others = [one for source in self.others for one in source()]
            self._go_on_with_others()
            return
        log, segment = found
        self._after = segment.base_offset
        if segment.index is not None and segment.index.first:
            self._open_index(log, segment)
        else:
            self._begin_segment(log, segment)

    def _next(self) -> tuple[Log, Segment] | None:
        while self._round:
            log = self._round[-1]
            at = bisect_right(log.segments, self._after, key=lambda segment: segment.base_offset)
            for segment in log.segments[at:] if not log.deleted else ():
                if segment.synced and not segment.suspect and not segment.in_memory:
                    return log, segment
            self._round.pop()
            self._after = -1
        return None

    def _open_index(self, log: Log, segment: Segment) -> None:
        """Load the index of a segment with appends since the start: it needs the entries of its file too."""
        path = segment.path + ".log"

        def opened(result: File | BaseException) -> None:
            if isinstance(result, BaseException):
                self._failed(log, segment, result)
            elif self._running and holds(log, segment):
                self._read_index(log, segment, result)
            else:
                self._go_on()

        self._worker.submit("read", lambda: self._files.open(path, read_only=True), opened)

    def _read_index(self, log: Log, segment: Segment, file: File) -> None:
        if segment.index is None or not segment.index.first:
            self._begin_segment(log, segment)  # a reader was faster
            return
        blocked = open_index(segment, file)

        def done(result: object) -> None:
            if isinstance(result, BaseException):
                self._failed(log, segment, result)
            else:
                blocked.apply(result)
                self._begin_segment(log, segment)

        self._worker.submit("read", blocked.job, done)

    # -- one segment --------------------------------------------------------------------------------

    def _begin_segment(self, log: Log, segment: Segment) -> None:
        index, size, end_offset = segment.index, segment.size, segment.end_offset
        whole = segment.closed and segment.synced == size
        if not whole:
            # An active segment is checked up to a batch that is in the index and synced.
            entry = index.last_start(segment.synced) if index is not None else None
            size = entry.position if entry is not None else 0
            end_offset = segment.base_offset + entry.offset if entry is not None else 0
        if not size or not holds(log, segment):
            self._worker.soon(self._go_on)
            return
        epoch_at = log.takeovers.epoch_at
        expected = ExpectedSegment(size, segment.base_offset, end_offset, ANY_OFFSET, epoch_at=epoch_at, whole=whole)
        self._step(_SegmentScrub(self._files, log, segment, expected))

    def _step(self, scrub: _SegmentScrub) -> None:
        if not self._running:
            return
        if holds(scrub.log, scrub.segment) and scrub.segment.replaced == scrub.replaced:
            self._worker.submit("read", scrub.step, partial(self._stepped, scrub))
        else:
            self._go_on()

    def _stepped(self, scrub: _SegmentScrub, result: bool | BaseException) -> None:
        if isinstance(result, BaseException):
            self._failed(scrub.log, scrub.segment, result)
            return
        self._bytes_total.value += scrub.read_bytes
        pause_ms = scrub.read_bytes * 1000 // self._bytes_per_second + 1
        if result:
            self._later(pause_ms, partial(self._step, scrub))
            return
        if scrub.check is not None and holds(scrub.log, scrub.segment) and scrub.segment.replaced == scrub.replaced:
            self._found(scrub, scrub.check)
        self._later(pause_ms, self._go_on)

    def _found(self, scrub: _SegmentScrub, check: SegmentCheck) -> None:
        segment = scrub.segment
        segment.on_damage = self._quarantine.found
        segment.add_damage(damage for damage in check.damage if damage.cause is not DamageCause.UNREADABLE)
        for damage in check.damage:
            if damage.cause is DamageCause.UNREADABLE:
                # The next read may get the bytes: its caller gets the error.
                self._quarantine.report(segment.name_damage(damage))
        if scrub.rebuilt and not check.damage and scrub.expected.whole:
            path = segment.path
            self._quarantine.report(f"{path}.index is damaged or missing: it is rebuilt")
            header = IndexHeader(scrub.log.id, segment.base_offset, scrub.log.key.stream_id, scrub.log.key.partition)
            job = partial(_write_index, self._files, path, header, check.index)
            self._worker.submit("disk", job, partial(self._index_written, path))

    def _index_written(self, path: str, result: object) -> None:
        if isinstance(result, BaseException):
            self._quarantine.report(f"{path}.index could not be written: {result}; it is rebuilt when it is needed")

    def _failed(self, log: Log, segment: Segment, error: BaseException) -> None:
        if holds(log, segment):
            if isinstance(error, FileNotFoundError):
                last_offset = max(segment.copied_offset() - 1, -1)
                damage = Damage(0, segment.copied, segment.base_offset, last_offset, DamageCause.MISSING_FILE)
                segment.on_damage = self._quarantine.found
                segment.add_damage([damage])
            else:
                self._quarantine.report(f"{segment.path}.log cannot be checked: {error}")
        self._later(1, self._go_on)


def _write_index(files: FileSystem, path: str, header: IndexHeader, index: SegmentIndex) -> None:
    if not files.exists(path + ".log"):
        return  # deleted meanwhile
    file = files.open(path + ".index", create=True)
    write_all(file, [header.encode(), index.encode(0, index.entries)], 0)
    file.sync()
