"""How far groups are behind: in records, and in the time of the first record they have not committed past.

A partition's end is its high watermark; a committed offset below the log's start counts from the start. The time is
that of the batch that holds the first such record: its first record's, or the append's where the broker sets times.

`time_of` is exact and may wait for the disk. `measure` never does: where the batch's header is not in memory it takes
the largest timestamp before the index entry (one for every 64 KiB of a segment) that the batch follows, so that a lag
looks longer than it is by what one entry spans, never shorter; where the index is not in memory either, that of the
segment's first batch. What had to be read for it is read meanwhile, so that the next measuring has it.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.errors import LogDamaged
from duramen.base.ports import Clock
from duramen.broker.bounds import TimeFound
from duramen.broker.groups.offsets import Offsets
from duramen.broker.streams import Streams
from duramen.groups.records import OffsetKey
from duramen.storage.log import Log
from duramen.storage.reader import Blocked
from duramen.storage.store import Store

__all__ = ["Lag", "Lags", "lag_between", "lag_of", "seconds_since"]

_AT_ONCE: Final = 100  # offsets looked at in one step of measuring: about a millisecond
_LOOKS_AT_ONCE: Final = 10  # of which so many may walk through the headers of an index entry's batches
_MOST_LOOKS: Final = 200  # in one measuring


class Lag(NamedTuple):
    """A group's place in a partition; `records` is how many there are from `next_offset` to the end."""

    start_offset: int
    next_offset: int
    end_offset: int

    @property
    def records(self) -> int:
        """Offsets that the group has not committed past."""
        return max(0, self.end_offset - self.next_offset)


class _Row(NamedTuple):
    key: OffsetKey
    records: int
    seconds: float | None


def lag_of(log: Log, committed_offset: int) -> Lag:
    """How far a group that has committed this offset is behind."""
    return lag_between(log.start_offset, log.high_watermark, committed_offset)


def lag_between(start_offset: int, end_offset: int, committed_offset: int) -> Lag:
    """The same, where a log has these bounds."""
    return Lag(start_offset, max(committed_offset, start_offset), end_offset)


def seconds_since(timestamp_ms: int, now_ms: int) -> float:
    """How long ago that was; 0 for a time to come."""
    return max(0, now_ms - timestamp_ms) / 1000


class Lags:
    """The lag of every group, as the metrics show it, and the times that it is made of."""

    def __init__(self, offsets: Offsets, streams: Streams, store: Store, clock: Clock, *, most_series: int) -> None:
        """At most `most_series` partitions of groups are measured; `left_out` says how many were not."""
        self._offsets = offsets
        self._streams = streams
        self._store = store
        self._clock = clock
        self._most_series = most_series
        self._rows: Sequence[_Row] = ()
        self._times: dict[OffsetKey, tuple[int, int | None]] = {}  # an offset of the partition, and its time
        self.left_out = 0

    # -- one partition ------------------------------------------------------------------------------

    def time_of(self, log: Log, offset: int, done: TimeFound) -> None:
        """The timestamp of the batch that holds the record at `offset`, which lies below the high watermark."""
        self._go_on(log, offset, done, None)

    def _go_on(self, log: Log, offset: int, done: TimeFound, error: BaseException | None) -> None:
        try:
            plan = log.plan_header(offset) if error is None else None
        except LogDamaged:
            plan = None
        if isinstance(plan, Blocked):
            self._store.unblock(plan, partial(self._go_on, log, offset, done))
        else:
            done(plan.first_timestamp if plan is not None and plan.first_timestamp >= 0 else None)

    # -- all of them --------------------------------------------------------------------------------

    def measure(self) -> Iterator[None]:
        """Look at what every group has committed, step by step, so that others may go on in between."""
        rows: list[_Row] = []
        behind: set[OffsetKey] = set()
        left_out = looks = 0
        for at, (key, committed) in enumerate(self._offsets.each_offset(), 1):
            if at % _AT_ONCE == 0:
                yield
            stream = self._streams.find(key.topic)
            if stream is None or not 0 <= key.partition < len(stream.partitions):
                continue
            if not stream.partitions[key.partition].holds:
                continue  # others know its end
            if len(rows) >= self._most_series:
                left_out += 1
                continue
            log = stream.partitions[key.partition].log
            lag = lag_of(log, committed.offset)
            seconds: float | None = 0.0
            if lag.records:
                behind.add(key)
                if looks < _MOST_LOOKS and self._times.get(key, (-1, None))[0] != lag.next_offset:
                    looks += 1
                    self.time_of(log, lag.next_offset, partial(self._found, key, lag.next_offset))
                    if looks % _LOOKS_AT_ONCE == 0:
                        yield
                seconds = self._seconds(key, log, lag)
            rows.append(_Row(key, lag.records, seconds))
        self._rows, self.left_out = rows, left_out
        for key in self._times.keys() - behind:
            del self._times[key]

    def _found(self, key: OffsetKey, offset: int, timestamp_ms: int | None) -> None:
        self._times[key] = (offset, timestamp_ms)

    def _seconds(self, key: OffsetKey, log: Log, lag: Lag) -> float | None:
        offset, timestamp_ms = self._times.get(key, (-1, None))
        if offset != lag.next_offset:
            timestamp_ms = log.time_before(lag.next_offset)
        if timestamp_ms is None or timestamp_ms < 0:
            return None
        return seconds_since(timestamp_ms, self._clock.wall_ms())

    def records(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """What was measured last: records, by group, stream and partition."""
        for key, records, _ in self._rows:
            yield (key.group, key.topic, str(key.partition)), records

    def seconds(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """What was measured last: seconds, where they are known."""
        for key, _, seconds in self._rows:
            if seconds is not None:
                yield (key.group, key.topic, str(key.partition)), seconds
