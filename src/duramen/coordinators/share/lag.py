"""The lag of the share groups that this node coordinates, for the metrics: in records, and in the age of the first one.

The leaders of the partitions report the records that a group is not done with. If a leader does not respond, its last
response is used for a minute. The age is that of the record at the group's start offset, as accurate as that of other
groups (`coordinators.group.lag`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from duramen.base.errors import DuramenError
from duramen.base.ports import Clock
from duramen.coordinators.group.lag_values import LagRow, seconds_since
from duramen.coordinators.group.remote_lag import RemoteLags, RemotePartition
from duramen.coordinators.group.topics import GroupTopics, LightFound
from duramen.coordinators.share.nodes import ShareNodes
from duramen.coordinators.share.shares import ShareOffset
from duramen.groups.records import OffsetKey
from duramen.groups.share_records import ShareKey

__all__ = ["ShareLags"]

_GROUPS_AT_ONCE: Final = 100
_LIGHT_AT_ONCE: Final = 20
_KEPT_MS: Final = 60_000

Done = Callable[[None], None]


class _Known(NamedTuple):
    """A leader's response and its time."""

    offset: ShareOffset
    told_ms: int


class _Light(NamedTuple):
    """A row of a light topic without its time, still under the key name of the topic, and the group's start offset."""

    row: LagRow
    start: int


class ShareLags:
    """The last measurement. At most `most_series` partitions of groups are measured; `left_out` counts the others."""

    def __init__(
        self, nodes: ShareNodes, topics: GroupTopics, times: RemoteLags, clock: Clock,
        soon: Callable[[Callable[[], None]], None], *, most_series: int,
    ) -> None:  # fmt: skip
        """`times` finds the times of records in streams; `soon` calls a function after other pending work."""
        self._nodes = nodes
        self._topics = topics
        self._times = times
        self._clock = clock
        self._soon = soon
        self._most_series = most_series
        self._keys: Sequence[ShareKey] = ()
        self._known: Mapping[ShareKey, _Known] = {}
        self._rows: Sequence[LagRow] = ()
        self.left_out = 0

    def measure(self) -> Iterator[None]:
        """Collect the share partitions of all groups, step by step, so that other work can run in between."""
        keys, left_out = list[ShareKey](), 0
        for at, group in enumerate(list(self._nodes.inventory.each()), 1):
            if at % _GROUPS_AT_ONCE == 0:
                yield
            with suppress(DuramenError):  # this node no longer coordinates the group, or its record is damaged
                self._nodes.inventory.check(group)
                found = self._nodes.inventory.keys(group)
                left_out += max(0, len(keys) + len(found) - self._most_series)
                keys += found[: self._most_series - len(keys)]
        self._keys, self.left_out = keys, left_out

    def ask(self, done: Done) -> None:
        """After `measure`: ask the leaders; calls `done(None)` once they have responded, or after some seconds."""
        self._nodes.locate_in_time(self._keys, partial(self._located, self._keys, done))

    def _located(
        self, keys: Sequence[ShareKey], done: Done, found: Mapping[ShareKey, ShareOffset | DuramenError | None]
    ) -> None:  # fmt: skip
        now_ms = self._clock.monotonic_ms()
        known = dict[ShareKey, _Known]()
        for key in keys:
            answer = found[key]
            if isinstance(answer, ShareOffset):
                known[key] = _Known(answer, now_ms)
            elif answer is not None and key in self._known and now_ms - self._known[key].told_ms <= _KEPT_MS:
                known[key] = self._known[key]
        self._known = known
        self._find_times(done)

    def _find_times(self, done: Done) -> None:
        """Add the times of first records to the known lags; a group has no lag in partitions that it has not read."""
        rows, light = list[LagRow](), list[_Light]()
        wanted = list[RemotePartition]()
        for key, (offset, _) in self._known.items():
            stored = self._nodes.topics.key_name(key.topic_id)
            if offset.start_offset < 0 or stored is None:
                continue
            row = LagRow(OffsetKey(key.group, stored, key.partition), offset.lag, None if offset.lag else 0.0)
            if self._nodes.topics.is_stream(key.topic_id):
                rows.append(row)
                if offset.lag:
                    wanted.append(RemotePartition(row.key, key.topic_id, offset.start_offset))
            else:
                light.append(_Light(row, offset.start_offset))

        def timed(light_rows: Sequence[LagRow]) -> None:
            seconds = {row.key: row.seconds for row in self._times.rows}
            self._rows = [
                *(row if row.seconds == 0.0 else row._replace(seconds=seconds.get(row.key)) for row in rows),
                *light_rows,
            ]
            done(None)

        self._times.ask(wanted, lambda _: self._find_light(light, timed))

    def _find_light(self, light: Sequence[_Light], done: Callable[[Sequence[LagRow]], None]) -> None:
        """The rows of light topics with their times, under the present names of the topics."""
        rows, elsewhere = list[LagRow](), list[_Light]()

        def found(answers: Sequence[LightFound | None]) -> None:
            for one, answer in zip(elsewhere, answers, strict=True):
                if answer is not None:
                    rows.append(self._row(one.row, answer.name, None if answer.lag is None else answer.lag.first_ms))
            done(rows)

        def step(begin: int) -> None:
            for one in light[begin : begin + _LIGHT_AT_ONCE]:
                stored = one.row.key.topic
                behind, name = self._topics.behind(stored, one.start, 1), self._topics.shown(stored)
                if behind is None or name is None:
                    elsewhere.append(one)
                else:
                    rows.append(self._row(one.row, name, behind.first_ms))
            if begin + _LIGHT_AT_ONCE < len(light):
                self._soon(partial(step, begin + _LIGHT_AT_ONCE))
            else:
                self._topics.find_behind([(one.row.key.topic, one.start) for one in elsewhere], found)

        step(0)

    def _row(self, row: LagRow, name: str, first_ms: int | None) -> LagRow:
        seconds = row.seconds
        if row.records and first_ms is not None:
            seconds = seconds_since(first_ms, self._clock.wall_ms())
        return row._replace(key=row.key._replace(topic=name), seconds=seconds)

    def records(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """The last measurement: records, by group, topic and partition."""
        return ((row.labels, row.records) for row in self._rows)

    def seconds(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """The last measurement: seconds, for partitions with a known time."""
        return ((row.labels, row.seconds) for row in self._rows if row.seconds is not None)
