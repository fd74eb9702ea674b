"""Periods in which the node was not subscribed to the NATS subjects of its streams.

The NATS door reports the start and the end of a period: for all streams on a standalone node, for each led partition on
a cluster node. Ended periods are stored in the metadata log, so that stream descriptions and metrics show them after a
restart. Pure.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError
from duramen.base.ids import StreamId
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock
from duramen.broker.changes import Changes, settled
from duramen.broker.control.requests import RecordGap
from duramen.broker.streams import BrokerStreams, Stream
from duramen.metadata.partitions import PartitionId
from duramen.metadata.state import Gap

__all__ = ["GapsOf", "NatsGapLog", "OpenGap"]

_RETRY_MS: Final = 5000


class OpenGap(NamedTuple):
    """A gap that is not over."""

    start_ms: int
    cause: str


class GapsOf(NamedTuple):
    """A stream's gaps: how many are over and how long they were together, the most recent ones, the one it is in."""

    gaps: int
    total_ms: int
    recent: tuple[Gap, ...]
    open: OpenGap | None


class NatsGapLog:
    """The gap there is now, and those kept. Times are ms since 1970."""

    def __init__(
        self,
        node_id: int,
        changes: Changes,
        streams: BrokerStreams,
        clock: Clock,
        deadlines: Deadlines,
        metrics: Metrics,
    ) -> None:
        self._node_id = node_id
        self._changes = changes
        self._streams = streams
        self._clock = clock
        self._deadlines = deadlines
        self._metrics = metrics
        self._unkept: deque[tuple[Gap, StreamId | None]] = deque()  # over, and not yet committed; None: of all
        self._open_in: dict[PartitionId, OpenGap] = {}
        self._keeping = False
        self.open: OpenGap | None = None

    def begin(self, start_ms: int, cause: str) -> None:
        """A gap starts at `start_ms`; an open one continues."""
        if self.open is None:
            self.open = OpenGap(start_ms, cause)

    def blame(self, cause: str) -> None:
        """The gap that is open has this cause: more is known now."""
        if self.open is not None:
            self.open = self.open._replace(cause=cause)
        for place, gap in self._open_in.items():
            self._open_in[place] = gap._replace(cause=cause)

    def end(self, end_ms: int) -> None:
        """The gap ends at `end_ms`."""
        gap, self.open = self.open, None
        if gap is not None and gap.start_ms < end_ms:
            self._unkept.append((Gap(gap.start_ms, end_ms, gap.cause), None))
            self._keep()

    def begin_in(self, place: PartitionId, start_ms: int, cause: str) -> None:
        """A gap of a partition starts at `start_ms`; an open one continues."""
        self._open_in.setdefault(place, OpenGap(start_ms, cause))

    def end_in(self, places: Iterable[PartitionId], end_ms: int) -> None:
        """The gaps of these partitions end at `end_ms`; those of one stream become one gap."""
        ended: dict[StreamId, OpenGap] = {}
        for place in places:
            gap = self._open_in.pop(place, None)
            if gap is not None:
                ended[place.stream_id] = min(gap, ended.get(place.stream_id, gap))
        for stream_id, gap in ended.items():
            if gap.start_ms < end_ms:
                self._unkept.append((Gap(gap.start_ms, end_ms, gap.cause), stream_id))
        self._keep()

    def _keep(self) -> None:
        if self._keeping or not self._unkept:
            return
        self._keeping = True
        gap, stream_id = self._unkept[0]

        def kept(error: DuramenError | None) -> None:
            self._keeping = False
            if error is None:
                self._unkept.popleft()
                self._keep()
            else:
                # The disk is full or has failed; until it is kept it is shown from memory.
                self._deadlines.at(self._clock.monotonic_ms() + _RETRY_MS, self._keep)

        concerned = "" if stream_id is None else str(stream_id)
        self._changes.ask(RecordGap(self._node_id, *gap, concerned), settled(kept))

    def of(self, stream: Stream) -> GapsOf:
        """The gaps of a stream."""
        if not stream.subjects:
            return GapsOf(0, 0, (), None)
        created_ms = stream.state.created_at_ms
        count, total_ms, recent = self._changes.state.gaps(stream.id)
        for gap, stream_id in self._unkept:
            start_ms = max(gap.start_ms, created_ms)
            if start_ms < gap.end_ms and stream_id in (None, stream.id):
                count, total_ms = count + 1, total_ms + gap.end_ms - start_ms
                recent = (*recent, gap._replace(start_ms=start_ms))
        here = [gap for place, gap in self._open_in.items() if place.stream_id == stream.id]
        now = self.open if self.open is not None else min(here, default=None)
        if now is not None:
            now = now._replace(start_ms=max(now.start_ms, created_ms))
        return GapsOf(count, total_ms, recent, now)

    def measure(self) -> None:
        """Set the metrics from the recorded gaps."""
        for stream in self._streams:
            count, total_ms, recent = self._changes.state.gaps(stream.id)
            for start_ms, end_ms, cause in recent:  # the oldest first: the last of each cause stays
                self._metrics.counter("duramen_nats_last_gap_start_seconds", stream.name, cause).value = start_ms / 1000
                self._metrics.counter("duramen_nats_last_gap_end_seconds", stream.name, cause).value = end_ms / 1000
            if count:
                self._metrics.counter("duramen_nats_gaps_total", stream.name).value = count
                self._metrics.counter("duramen_nats_gap_seconds_total", stream.name).value = total_ms / 1000
