"""The lag of groups: in records, and in the age of the first record after the committed offset.

Only a group's coordinator reports it: from local logs for partitions that this node leads, from their leaders for
others (`remote_lag`). A partition's end is its leader's high watermark. If the committed offset is below the log's
start, the lag counts from the start.

`measure` never waits for the disk. If the header of the first such record's batch is not in memory, it uses the largest
timestamp before the batch's index entry (one for every 64 KiB of a segment), so that a lag looks longer by at most the
span of one entry, never shorter. If the index is not in memory either, it uses the timestamp of the segment's first
batch. Missing data is read in the background, so that the next measurement has it.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from duramen.base.ports import Clock
from duramen.broker.list_offsets import find_time
from duramen.broker.streams import BrokerStreams
from duramen.coordinators.group.lag_values import Lag, LagRow, lag_between, seconds_since
from duramen.coordinators.group.offsets import GroupOffsets
from duramen.coordinators.group.remote_lag import RemoteLags, RemotePartition
from duramen.coordinators.group.topics import MOST_COUNTED, GroupTopics, LightFound, LightLag
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.storage.log.log import Log
from duramen.storage.store import Store

__all__ = ["Lags", "lag_of"]

_AT_ONCE: Final = 100  # offsets per step of a measurement: about a millisecond
_LOOKUPS_AT_ONCE: Final = 10  # of these, lookups that may walk the headers of an index entry's batches
_MOST_LOOKUPS: Final = 200  # per measurement


def lag_of(log: Log, committed_offset: int) -> Lag:
    """The lag of a group that has committed this offset."""
    return lag_between(log.start_offset, log.high_watermark, committed_offset)


class Lags:
    """The lag of every group for the metrics, and the timestamps from which it is computed."""

    def __init__(
        self,
        offsets: GroupOffsets,
        streams: BrokerStreams,
        topics: GroupTopics,
        store: Store,
        clock: Clock,
        elsewhere: RemoteLags,
        *,
        most_series: int,
    ) -> None:
        """At most `most_series` partitions of groups are measured; `left_out` counts the others."""
        self._offsets = offsets
        self._streams = streams
        self._topics = topics
        self._store = store
        self._clock = clock
        self._elsewhere = elsewhere
        self._most_series = most_series
        self._rows: Sequence[LagRow] = ()
        self._light: Sequence[tuple[OffsetKey, int]] = ()  # offsets in light topics that other nodes hold
        self._light_rows: Sequence[LagRow] = ()
        self._places: Sequence[RemotePartition] = ()
        self._times: dict[OffsetKey, tuple[int, int | None]] = {}  # an offset of the partition, and its timestamp
        self.left_out = 0

    def measure(self) -> Iterator[None]:
        """Measure the lag of every committed offset, step by step, so that other work can run in between."""
        rows: list[LagRow] = []
        places: list[RemotePartition] = []
        elsewhere: list[tuple[OffsetKey, int]] = []
        behind: set[OffsetKey] = set()
        left_out = lookups = 0
        for at, (key, committed) in enumerate(self._committed(), 1):
            if at % _AT_ONCE == 0:
                yield
            stream = self._streams.readable(key.topic)
            if stream is not None and not 0 <= key.partition < len(stream.partitions):
                continue
            if len(rows) + len(places) + len(elsewhere) >= self._most_series:
                left_out += 1
                continue
            if stream is None:
                behind_light = self._topics.behind(key.topic, committed.offset, MOST_COUNTED)
                if behind_light is None:
                    elsewhere.append((key, committed.offset))
                else:
                    rows += self._light_row(key, self._topics.shown(key.topic), behind_light)
                    yield  # the row took a count of records
                continue
            partition = stream.partitions[key.partition]
            if not partition.leads:
                places.append(RemotePartition(key, partition.place.stream_id, committed.offset))
                continue
            log = partition.log
            lag = lag_of(log, committed.offset)
            if lag.records:
                behind.add(key)
                if lookups < _MOST_LOOKUPS and self._look_up(key, log, lag):
                    lookups += 1
                    if lookups % _LOOKUPS_AT_ONCE == 0:
                        yield
            rows.append(LagRow(key, lag.records, self._seconds(key, log, lag)))
        self._rows, self._places, self._light, self.left_out = rows, places, elsewhere, left_out
        for key in self._times.keys() - behind:
            del self._times[key]

    def _committed(self) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """The committed offsets whose lag this node reports."""
        group, deposed = "", True
        for key, committed in self._offsets.each_offset():
            if key.group != group:
                group, deposed = key.group, self._offsets.deposed(key.group)
            if not deposed:  # a deposed coordinator reports nothing: the new one does
                yield key, committed

    def _look_up(self, key: OffsetKey, log: Log, lag: Lag) -> bool:
        """Look up the time of the first unread record unless it is known; returns whether a lookup was needed."""
        unknown = self._times.get(key, (-1, None))[0] != lag.next_offset
        if unknown:
            find_time(self._store, log, lag.next_offset, partial(self._found, key, lag.next_offset))
        return unknown

    def _light_row(self, key: OffsetKey, name: str | None, behind: LightLag | None) -> list[LagRow]:
        """The lag in a light topic, if known, under the topic's present name."""
        if name is None or behind is None:
            return []
        seconds = seconds_since(behind.first_ms, self._clock.wall_ms()) if behind.records else 0.0
        return [LagRow(key._replace(topic=name), behind.records, seconds)]

    def ask(self, done: Callable[[None], None]) -> None:
        """Ask the leaders of partitions on other nodes for their lag; calls `done(None)` once they have responded.

        It calls `done` after three seconds at the latest.
        """
        wanted = self._light

        def found(lags: Sequence[LightFound | None]) -> None:
            self._light_rows = [
                row
                for (key, _), one in zip(wanted, lags, strict=True)
                if one is not None
                for row in self._light_row(key, one.name, one.lag)
            ]
            done(None)

        def partitions_asked(_: None) -> None:
            self._topics.find_behind([(key.topic, offset) for key, offset in wanted], found)

        self._elsewhere.ask(self._places, partitions_asked)

    def _found(self, key: OffsetKey, offset: int, timestamp_ms: int | None) -> None:
        self._times[key] = (offset, timestamp_ms)

    def _seconds(self, key: OffsetKey, log: Log, lag: Lag) -> float | None:
        if not lag.records:
            return 0.0
        offset, timestamp_ms = self._times.get(key, (-1, None))
        if offset != lag.next_offset:
            timestamp_ms = log.time_before(lag.next_offset)
        if timestamp_ms is None or timestamp_ms < 0:
            return None
        return seconds_since(timestamp_ms, self._clock.wall_ms())

    def _all(self) -> Iterator[LagRow]:
        here = {row.key for row in self._rows}
        # Responses of former leaders may be about partitions that this node leads by now.
        others = (*self._elsewhere.rows, *self._light_rows)
        yield from (*self._rows, *(row for row in others if row.key not in here))

    def records(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """The last measurement: records, by group, stream and partition."""
        return ((row.labels, row.records) for row in self._all())

    def seconds(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """The last measurement: seconds, for partitions with a known time."""
        return ((row.labels, row.seconds) for row in self._all() if row.seconds is not None)
