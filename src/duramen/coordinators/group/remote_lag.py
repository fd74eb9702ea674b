"""The lag of locally coordinated groups in partitions that other nodes lead, as their leaders report it.

Leaders are asked on demand. If one does not respond, its last response is used for a minute: without a leader nothing
is written, and after a reconnect there is a new response.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.errors import DuramenError
from duramen.base.ids import StreamId
from duramen.base.ports import Clock
from duramen.broker.list_offsets import BoundsOf, ListOffsetsPartition, PartitionBounds
from duramen.coordinators.group.lag_values import LagRow, lag_between, seconds_since
from duramen.groups.records import OffsetKey

__all__ = ["RemoteLags", "RemotePartition"]

_KEPT_MS: Final = 60_000
_MOST_LOOKUPS: Final = 200  # lookups of timestamps for which leaders may read their disks, per request
_AT_ONCE: Final = 200  # partitions per step: a millisecond


class RemotePartition(NamedTuple):
    """A group's committed offset in a partition."""

    key: OffsetKey
    stream_id: StreamId
    committed_offset: int


class _Known(NamedTuple):
    """A leader's response and its time; the offset whose timestamp it returned, and whether that is exact."""

    bounds: PartitionBounds
    told_ms: int
    offset: int
    timestamp_ms: int
    exact: bool


class _Round:
    """Partitions to ask for, and what is known of them so far. `open` counts pending requests."""

    def __init__(self, places: Sequence[RemotePartition], done: Callable[[None], None]) -> None:
        self.places = places
        self.done = done
        self.open = 1  # held until the last request is sent
        self.known: dict[OffsetKey, _Known] = {}
        self.rows: list[LagRow] = []


class RemoteLags:
    """The last responses of leaders. `rows` has the resulting lags."""

    def __init__(self, bounds: BoundsOf, clock: Clock, soon: Callable[[Callable[[], None]], None]) -> None:
        """`soon` calls a function after other pending work."""
        self._bounds = bounds
        self._clock = clock
        self._soon = soon
        self._known: dict[OffsetKey, _Known] = {}
        self.rows: Sequence[LagRow] = ()

    def ask(self, places: Sequence[RemotePartition], done: Callable[[None], None]) -> None:
        """Ask the leaders of exactly these partitions.

        It calls `done(None)` once they have responded, or at the deadline.
        """
        self._ask(_Round(places, done), 0, 0)

    def _ask(self, round_: "_Round", begin: int, lookups: int) -> None:
        """Ask for the partitions from `begin` on, in steps."""
        places = round_.places[begin : begin + _AT_ONCE]
        wanted: list[ListOffsetsPartition] = []
        for place in places:
            request = self._request(place, exact_time=lookups < _MOST_LOOKUPS)
            lookups += request.offset >= 0 and not request.roughly
            wanted.append(request)
        round_.open += 1
        self._bounds.find(wanted, partial(self._told, round_, places, wanted))
        if begin + _AT_ONCE < len(round_.places):
            self._soon(partial(self._ask, round_, begin + _AT_ONCE, lookups))
        else:
            self._over(round_)

    def _request(self, place: RemotePartition, *, exact_time: bool) -> ListOffsetsPartition:
        """The request for a partition. It asks for an exact time if that is unknown and the group has a lag."""
        known = self._known.get(place.key)
        stream_id, partition = place.stream_id.bytes, place.key.partition
        if known is None:
            return ListOffsetsPartition(stream_id, partition, offset=place.committed_offset, roughly=not exact_time)
        lag = lag_between(known.bounds.start_offset, known.bounds.end_offset, place.committed_offset)
        if known.exact and known.offset == lag.next_offset:
            return ListOffsetsPartition(stream_id, partition)
        return ListOffsetsPartition(
            stream_id, partition, offset=place.committed_offset, roughly=not (exact_time and lag.records)
        )

    def _told(
        self, round_: "_Round", places: Sequence[RemotePartition], wanted: Sequence[ListOffsetsPartition],
        found: Sequence[PartitionBounds | DuramenError],
    ) -> None:  # fmt: skip
        now_ms = self._clock.wall_ms()
        for place, request, one in zip(places, wanted, found, strict=True):
            before = self._known.get(place.key)
            known = (
                self._learned(place, request, one, before) if isinstance(one, PartitionBounds) else self._kept(before)
            )
            if known is not None:
                round_.known[place.key] = known
                round_.rows.append(_row(place, known, now_ms))
        self._over(round_)

    def _over(self, round_: "_Round") -> None:
        round_.open -= 1
        if not round_.open:
            self._known, self.rows = round_.known, round_.rows
            round_.done(None)

    def _learned(
        self, place: RemotePartition, request: ListOffsetsPartition, bounds: PartitionBounds, before: _Known | None
    ) -> _Known:
        now_ms = self._clock.monotonic_ms()
        if request.offset < 0 and before is not None:
            return before._replace(bounds=bounds, told_ms=now_ms)
        lag = lag_between(bounds.start_offset, bounds.end_offset, place.committed_offset)
        exact = not request.roughly and bounds.timestamp_ms >= 0
        return _Known(bounds, now_ms, lag.next_offset, bounds.timestamp_ms, exact)

    def _kept(self, before: _Known | None) -> _Known | None:
        is_old = before is not None and self._clock.monotonic_ms() - before.told_ms > _KEPT_MS
        return None if is_old else before


def _row(place: RemotePartition, known: _Known, now_ms: int) -> LagRow:
    bounds = known.bounds
    lag = lag_between(bounds.start_offset, bounds.end_offset, place.committed_offset)
    seconds: float | None = 0.0
    if lag.records:
        is_its = known.offset == lag.next_offset and known.timestamp_ms >= 0
        seconds = seconds_since(known.timestamp_ms, now_ms) if is_its else None
    return LagRow(place.key, lag.records, seconds)
