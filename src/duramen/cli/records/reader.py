"""Reads a stream for standard output: its start, its end, and its group."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar

import click

from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    NotCoordinator,
    OffsetOutOfRange,
    RecordsLost,
    RequestTimedOut,
    ServerUnreachable,
    StreamNotFound,
)
from duramen.client import BrokerCluster, Consumer, GroupMembership, TopicLeaders, TopicPartition
from duramen.client.places import FOREVER
from duramen.codec.batch import CONTROL, DecodedRecord, batches, records

__all__ = ["GroupShare", "RecordChunk", "StreamRecords"]

_WAIT_MS: Final = 500
_TOPIC_S: Final = 5.0  # how often a follower looks whether the stream has more partitions
_COMMIT_S: Final = 1.0
_LEAVING_S: Final = 5.0

_T = TypeVar("_T")


class RecordChunk(NamedTuple):
    """Records of one partition; the next one begins at `next_offset`."""

    at: TopicPartition
    records: Sequence[DecodedRecord]
    next_offset: int


class StreamRecords:
    """Reads partitions of one stream from where they are up to their ends, whichever has something first."""

    def __init__(self, consumer: Consumer, topic: TopicLeaders, *, follow: bool) -> None:
        """A follower waits for a node that does not answer, and says so."""
        self.positions: dict[TopicPartition, int] = {}
        """Partitions with records to read, the least recently read first, so that none waits behind the others."""
        self._consumer = consumer
        self._topic = topic
        self._follow = follow
        self._ends: dict[TopicPartition, int] = {}
        self._next_look = time.monotonic() + _TOPIC_S

    def read(self, firsts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """From now on read these partitions, each from its first offset to its end."""
        self._ends = dict(ends)
        self.positions = {at: first for at, first in firsts.items() if first < ends[at]}

    def chunks(self) -> Iterator[RecordChunk]:
        """The next records of several partitions; may be empty. Raises StreamNotFound, RecordsLost …"""
        if not self.positions:
            time.sleep(_WAIT_MS / 1000)
            return
        try:
            found = self.patiently(lambda: self._consumer.fetch(self.positions, max_wait_ms=_WAIT_MS))
        except OffsetOutOfRange as error:
            self._check_topic()
            raise self._lost(error) from None
        except StreamNotFound:
            raise self._deleted() from None
        self._check_topic()
        for fetched in found:
            first, end = self.positions[fetched.at], self._ends[fetched.at]
            if fetched.next_offset <= first:
                continue
            taken = [
                record
                for piece in fetched.pieces
                for place, head in batches(piece)
                if not head.attributes & CONTROL
                for record in records(piece[place : place + head.size])
                if first <= record.offset < end
            ]
            del self.positions[fetched.at]
            if fetched.next_offset < end:
                self.positions[fetched.at] = fetched.next_offset
            yield RecordChunk(fetched.at, taken, min(fetched.next_offset, end))

    def patiently(self, call: Callable[[], _T]) -> _T:
        """The result of `call`; with --follow, waits for a node that does not respond, and reports that once."""
        said = False
        while True:
            try:
                return call()
            except (ServerUnreachable, RequestTimedOut, CoordinatorLoading, NotCoordinator) as error:
                if not self._follow:
                    raise
                if not said:
                    click.echo(f"duramen: {error}; waiting", err=True)
                said = True

    def look_for_more(self) -> None:
        """Read the partitions too that the stream has got since. Raises StreamNotFound."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _TOPIC_S
        known, name = self._topic.leaders, self._topic.name
        fresh = self.patiently(lambda: self._consumer.cluster.topics([name])).get(name)
        if fresh is None:
            raise self._deleted()
        self._check_topic()
        self._topic = fresh
        for at in (TopicPartition(name, index) for index in fresh.leaders if index not in known):
            self.positions[at], self._ends[at] = 0, FOREVER

    def _check_topic(self) -> None:
        """Another stream may have the name by now: its offsets are not those that are read."""
        try:
            fresh = self.patiently(lambda: self._consumer.cluster.topic(self._topic.name))
        except StreamNotFound:
            raise self._deleted() from None
        if fresh.id != self._topic.id:
            raise StreamNotFound(f"stream {self._topic.name} was deleted and created again while it was read")

    def _deleted(self) -> StreamNotFound:
        return StreamNotFound(f"stream {self._topic.name} was deleted while it was read")

    def _lost(self, error: OffsetOutOfRange) -> DuramenError:
        bounds = self.patiently(lambda: self._consumer.bounds(list(self.positions)))
        for at, position in self.positions.items():
            start = bounds[at][0]
            if position < start:
                return RecordsLost(f"the records {position} to {start - 1} of {at} were removed before they were read")
        return error


class GroupShare:
    """The part of a stream that a consumer group gives to this member of it; a context in which it is a member."""

    def __init__(self, cluster: BrokerCluster, reader: StreamRecords, member: GroupMembership, group: str) -> None:
        self._cluster = cluster
        self._reader = reader
        self._member = member
        self._group = group
        self._written: dict[TopicPartition, int] = {}  # next offsets that are not committed yet
        self._next_commit = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is None:
            self._commit()
        elif not issubclass(kind, StreamNotFound):
            # An interrupted request leaves its connections unusable: use new ones, with a short timeout.
            self._cluster.close()
            self._cluster.timeout_s = min(self._cluster.timeout_s, _LEAVING_S)
            with contextlib.suppress(DuramenError):
                self._commit()
        self._member.leave()

    def keep(self, begin: Callable[[Sequence[TopicPartition], Mapping[TopicPartition, int]], None]) -> None:
        """Stay a member; after each join, `begin` gets the partitions and the group's committed offsets."""
        if self._written and time.monotonic() >= self._next_commit:
            self._reader.patiently(self._commit)
        if self.alive():
            return
        self._reader.patiently(self._commit)
        self._reader.patiently(self._member.join)
        begin(self._member.assigned, self._reader.patiently(self._member.committed))

    def alive(self) -> bool:
        """Whether the partitions are still this member's, as far as it knows."""
        return self._reader.patiently(self._member.heartbeat)

    def written(self, at: TopicPartition, next_offset: int) -> None:
        """Records before `next_offset` are written: the group need not read them again."""
        if not self._written:
            self._next_commit = time.monotonic() + _COMMIT_S
        self._written[at] = next_offset

    def _commit(self) -> None:
        taken = self._member.commit(self._written)
        if not taken:
            names = ", ".join(f"{at} up to {offset - 1}" for at, offset in sorted(self._written.items()))
            click.echo(
                f"duramen: group {self._group} removed this member before it could commit {names}: other members also "
                "get those records", err=True,
            )  # fmt: skip
        self._written = {}
