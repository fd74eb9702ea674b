"""Reads a keyed stream snapshot by snapshot in a consumer group: each has the changes since the previous one.

The group's position is the snapshot itself, stored as ordinary committed offsets: one integer per partition.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from duramen.base.errors import (
    GroupNotEmpty,
    IllegalGeneration,
    RebalanceInProgress,
    RequestInvalid,
    SnapshotStartOver,
    UnknownMember,
)
from duramen.base.ids import Position
from duramen.client.api.arguments import flag, seconds, text
from duramen.client.api.http import Program, Question
from duramen.client.api.records import Record
from duramen.client.api.snapshot_pages import Part
from duramen.client.api.snapshots import AsyncSnapshot, Run, RunAsync, Snapshot
from duramen.client.api.values import value_of
from duramen.client.cluster import BrokerCluster, TopicPartition
from duramen.client.coordinator import GroupCoordinatorClient
from duramen.client.http import path_of, vector_text
from duramen.client.interrupt import Interrupt

__all__ = ["AsyncGroupSnapshot", "GroupCourse", "GroupOffsets", "GroupSnapshot"]

_WAIT_MS: Final = 5_000
_HOLD_AFTER_S: Final = 5.0
"""A snapshot that is read for longer is held open by a lease."""


class GroupCourse:
    """A group's position in a stream, and its next snapshot. Pure except for the clock."""

    def __init__(
        self, stream: str, group: str, *, whole: bool, idle_s: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Raises RequestInvalid."""
        self.stream = text("stream", stream)
        self.group = text("group", group)
        if not group:
            raise RequestInvalid("group must not be empty: it names who reads the snapshots")
        self.whole = flag("whole", whole)
        self.since: dict[int, int] = {}
        """The position that was read to its end, or committed, before."""
        self.epochs: dict[int, int] = {}
        """The leader epochs of the records before the snapshot that was given last."""
        self._given: dict[int, int] = {}
        self._idle_s = None if idle_s is None else seconds("idle_s", idle_s)
        self.clock = clock
        self._began_s = clock()

    def begin(self, committed: Mapping[int, Position]) -> None:
        """Continue at these offsets."""
        self.since = {partition: found.offset for partition, found in committed.items()}
        self.epochs = {partition: found.leader_epoch for partition, found in committed.items()}
        self._given = dict(self.since)

    def next(self) -> Program[dict[int, int] | None]:
        """The next snapshot, if there is a newer one than the last; None: nothing came for `idle_s`."""
        while True:
            left_s = None if self._idle_s is None else self._idle_s - (self.clock() - self._began_s)
            wait_ms = _WAIT_MS if left_s is None else max(0, min(_WAIT_MS, int(1000 * left_s)))
            at = self._checked((yield Question("GET", self._path(wait_ms))))
            if any(offset > self._given.get(partition, -1) for partition, offset in at.items()):
                self._given = at
                return at
            if left_s is not None and left_s <= 0:
                return None

    def _path(self, wait_ms: int) -> str:
        path = f"{path_of('streams', self.stream)}/snapshot"
        if not self._given:
            return path
        return f"{path}?{urlencode({'newer_than': vector_text(self._given, self.epochs), 'newer_wait_ms': wait_ms})}"

    def _checked(self, answer: object) -> dict[int, int]:
        parts = value_of(value_of(answer, dict[str, Any]).get("partitions"), list[dict[str, Any]])
        at, epochs = dict[int, int](), dict[int, int]()
        for part in parts:
            partition, horizon = value_of(part.get("partition"), int), value_of(part.get("horizon"), int)
            at[partition], epochs[partition] = value_of(part.get("at"), int), value_of(part.get("epoch"), int)
            since = self.since.get(partition)
            if since is not None and since < horizon:
                raise SnapshotStartOver(
                    f"the group {self.group} has read partition {partition} of {self.stream} up to {since}, and"
                    f" tombstones are kept from {horizon} on: drop the state and begin with whole=True"
                )
        self.epochs = epochs
        return at

    def parts(self, at: Mapping[int, int]) -> list[Part]:
        """The reads of the snapshot at `at`."""
        since = self.since
        return [
            Part(partition, offset, since.get(partition))
            for partition, offset in at.items()
            if since.get(partition) != offset
        ]

    def reached(self, at: Mapping[int, int]) -> None:
        """The snapshot was read to its end or committed: the next one starts there."""
        self.since = self.since | dict(at)
        self.touched()

    def touched(self) -> None:
        """Records have come: the idle time starts again."""
        self._began_s = self.clock()


class GroupOffsets:
    """The committed offsets of a group in a stream, over connections of its own. Blocking; one thread at a time."""

    def __init__(self, kafka: str, course: GroupCourse, *, timeout_s: float) -> None:
        self.interrupt = Interrupt()
        """Set from any thread, it ends what is under way here with ClientClosed."""
        self.closed = False
        """Whether it was closed; what is committed later has a connection for itself."""
        self._cluster = BrokerCluster(kafka, client_id="duramen-python", timeout_s=timeout_s, interrupt=self.interrupt)
        self._coordinator = GroupCoordinatorClient(self._cluster, course.group)
        self._stream = course.stream
        self._group = course.group

    def committed(self) -> dict[int, Position]:
        """The committed offsets of the group; empty for partitions of which it has read nothing."""
        wanted = [TopicPartition(self._stream, index) for index in self._cluster.topic(self._stream).leaders]
        return {at.partition: found for at, found in self._coordinator.positions(wanted).items()}

    def commit(self, at: Mapping[int, int], epochs: Mapping[int, int]) -> None:
        """Store the group's offsets. Raises GroupNotEmpty if consumers are members of the group."""
        try:
            self._coordinator.commit(
                {TopicPartition(self._stream, index): offset for index, offset in at.items()},
                leader_epochs={TopicPartition(self._stream, index): epoch for index, epoch in epochs.items()},
            )
        except (UnknownMember, IllegalGeneration, RebalanceInProgress):
            raise GroupNotEmpty(
                f"the group {self._group} has members: snapshots are committed in a group of their own"
            ) from None
        finally:
            if self.closed:
                self._cluster.close()

    def close(self) -> None:
        """Close its connections."""
        self.closed = True
        self._cluster.close()


class GroupSnapshot(Snapshot):
    """The part of a keyed stream as of `at` that a group has not read yet: made by `client.snapshots`.

    It has the records, including deletions, that became visible since the snapshot at `since` and are visible in this
    one; for a partition without an offset in `since`, all records.

    >>> client.streams.create("docks", config={"keyed": True})
    StreamInfo(...)
    >>> places = client.produce("docks", [NewRecord("full", key="1")])
    >>> for snapshot in client.snapshots("docks", group="dock-display", idle_s=0):
    ...     print([record.text for record in snapshot], snapshot.since, snapshot.at)
    ['full'] {} {0: 1}
    """

    def __init__(self, run: Run, course: GroupCourse, at: Mapping[int, int], commit: Callable[[], None]) -> None:
        super().__init__(run, course.stream, at)
        self.since = dict(course.since)
        self._course = course
        self._parts = course.parts(at)
        self._commit = commit
        self._hold_s = course.clock() + _HOLD_AFTER_S

    def __iter__(self) -> Iterator[Record]:
        yield from self._records(self._parts)
        self._course.reached(self.at)

    def commit(self) -> None:
        """Store `at` as the group's offsets, so that the next snapshot, in any process, starts there.

        Raises GroupNotEmpty if the group has members, ServerUnreachable …

        >>> client.streams.create("stands", config={"keyed": True})
        StreamInfo(...)
        >>> places = client.produce("stands", [NewRecord("free", key="A1"), NewRecord("taken", key="A1")])
        >>> for snapshot in client.snapshots("stands", group="stand-display", idle_s=0):
        ...     print([record.text for record in snapshot])
        ...     snapshot.commit()
        ['taken']
        >>> client.groups.describe("stand-display").offsets[0].committed_offset
        2
        """
        self._commit()
        self._course.reached(self.at)

    def _keep(self) -> None:
        if self._held is None and self._course.clock() >= self._hold_s:
            self.hold()
        super()._keep()


class AsyncGroupSnapshot(AsyncSnapshot):
    """The unread part of a keyed stream for a group; more in `duramen.GroupSnapshot`.

    >>> await client.streams.create("aio-docks", config={"keyed": True})
    StreamInfo(...)
    >>> places = await client.produce("aio-docks", [duramen.NewRecord("full", key="1")])
    >>> async for snapshot in client.snapshots("aio-docks", group="aio-dock-display", idle_s=0):
    ...     print([record.text async for record in snapshot], snapshot.since, snapshot.at)
    ['full'] {} {0: 1}
    """

    def __init__(
        self, run: RunAsync, course: GroupCourse, at: Mapping[int, int], commit: Callable[[], Awaitable[None]]
    ) -> None:  # fmt: skip
        super().__init__(run, course.stream, at)
        self.since = dict(course.since)
        self._course = course
        self._parts = course.parts(at)
        self._commit = commit
        self._hold_s = course.clock() + _HOLD_AFTER_S

    def __aiter__(self) -> AsyncIterator[Record]:
        return self._all()

    async def _all(self) -> AsyncIterator[Record]:
        async for record in self._records(self._parts):
            yield record
        self._course.reached(self.at)

    async def commit(self) -> None:
        """Store `at` as the group's offsets; more in `duramen.GroupSnapshot.commit`.

        >>> await client.streams.create("aio-stands", config={"keyed": True})
        StreamInfo(...)
        >>> places = await client.produce("aio-stands", [duramen.NewRecord("free", key="A1")])
        >>> async for snapshot in client.snapshots("aio-stands", group="aio-stand-display", idle_s=0):
        ...     print([record.text async for record in snapshot])
        ...     await snapshot.commit()
        ['free']
        """
        await self._commit()
        self._course.reached(self.at)

    async def _keep(self) -> None:
        if self._held is None and self._course.clock() >= self._hold_s:
            await self.hold()
        await super()._keep()
