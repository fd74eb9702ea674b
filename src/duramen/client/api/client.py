"""The synchronous client."""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar, overload

from duramen.base.errors import ClientClosed, DuramenError, RequestInvalid
from duramen.client.api import http as http_api
from duramen.client.api import streams
from duramen.client.api.arguments import seconds, server_of
from duramen.client.api.group_snapshots import GroupCourse, GroupOffsets, GroupSnapshot
from duramen.client.api.http import Config, Program, Question
from duramen.client.api.inventory.inventory import Inventory
from duramen.client.api.joint_snapshots import JointSnapshot, joint_positions
from duramen.client.api.leases import find_lease
from duramen.client.api.membership import reader_of
from duramen.client.api.offset_ranges import Where, text_of
from duramen.client.api.queues.queues import Queues
from duramen.client.api.queues.spaces import Spaces
from duramen.client.api.reader import RecordReader, wanted
from duramen.client.api.records import Batch, Place, Writable, encodable
from duramen.client.api.replication_wait import wait_replicated
from duramen.client.api.snapshots import Snapshot, Vector, positions, vector_of
from duramen.client.api.values import GroupDetails, GroupInfo, NodeInfo, OffsetChange, StreamInfo
from duramen.client.api.writer import ProduceJob, RecordWriter, codec_of
from duramen.client.http import HttpNode

__all__ = [
    "Client",
    "GroupSnapshot",
    "Groups",
    "Inventory",
    "JointSnapshot",
    "Queues",
    "Snapshot",
    "Spaces",
    "Streams",
    "connect",
]

_T = TypeVar("_T")


def connect(server: str | None = None, *, timeout_s: float = 30.0, compression: str = "none") -> "Client":
    """A client of the node with the HTTP address `server`, otherwise DURAMEN_SERVER, otherwise 127.0.0.1:9644.

    `timeout_s` is how long requests to a node that does not respond are retried. `compression` of written records is
    none, gzip, snappy, lz4 or zstd. Raises ServerUnreachable, SettingInvalid or RequestInvalid.

    >>> with duramen.connect(server) as client:
    ...     client.streams.create("flights").name
    'flights'
    """
    return Client(server_of(server), timeout_s=seconds("timeout_s", timeout_s), codec=codec_of(compression))


class Client:
    """The requests of a node as blocking calls. Made by `connect`; several threads may share one.

    >>> client.streams.create("orders")
    StreamInfo(...)
    >>> client.produce("orders", ["one", "two"])
    [Place(partition=0, offset=0), Place(partition=0, offset=1)]
    >>> [record.text for batch in client.consume("orders") for record in batch]
    ['one', 'two']
    """

    def __init__(self, server: HttpNode, *, timeout_s: float, codec: int) -> None:
        """Raises ServerUnreachable if no node responds at `server`."""
        self._server = server
        self._timeout_s = timeout_s
        self._kafka = server.kafka_of(server.get("/v1/node"))
        self._lock = threading.Lock()
        self._writer = RecordWriter(self._kafka, timeout_s=timeout_s, codec=codec)
        self._closed = False
        self.streams = Streams(self)
        """Streams: create, list, describe, alter, delete."""
        self.groups = Groups(self)
        """Consumer groups: list, describe, reset, delete."""
        self.inventory = Inventory(self.run)
        """The inventory: tenants, namespaces and topics."""
        self.spaces = Spaces(self.run)
        """Queue spaces: create, list, describe, delete."""

    @property
    def server(self) -> str:
        """The node's HTTP address.

        >>> client.server == server
        True
        """
        return self._server.address

    def close(self) -> None:
        """Close its connections; a waiting `produce` of another thread ends with ClientClosed.

        >>> other = duramen.connect(server)
        >>> other.close()
        >>> other.node()
        Traceback (most recent call last):
        duramen.base.errors.ClientClosed: the client is closed: connect again
        """
        self._closed = True
        self._server.close()
        self._writer.interrupt.set()
        with self._lock:
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        if self._closed:
            raise ClientClosed("the client is closed: connect again")

    def run(self, program: Program[_T]) -> _T:
        """Execute a program of `api.http`."""
        self._check()
        return http_api.answered(program, self._ask)

    def _ask(self, question: Question) -> Any:
        server = HttpNode(question.server) if question.server else self._server
        exchange = server.exchange(question.method, question.path, question.document, question.accept)
        return question.answer_of(exchange)

    def node(self) -> NodeInfo:
        """The node that answers. Raises ServerUnreachable.

        >>> client.node().version == duramen.__version__
        True
        """
        return self.run(http_api.node())

    def produce(self, stream: str, records: Iterable[Writable], *, partition: int | None = None) -> list[Place]:
        """Store records in one call, acknowledged as with acks=all; returns their places in order.

        After a lost connection the records are sent again, and the node recognises stored ones. If an error is raised,
        its message gives the number of records that are stored, the number that may be, and whether a repeat is safe.

        Raises StreamNotFound, BatchTooLarge, ServerUnreachable, RequestTimedOut, RequestInvalid …

        >>> client.streams.create("prices", partitions=2)
        StreamInfo(...)
        >>> client.produce("prices", ["10", duramen.NewRecord("12", key="apples")], partition=1)
        [Place(partition=1, offset=0), Place(partition=1, offset=1)]
        """
        self._check()
        job = ProduceJob(stream, encodable(records, partition))
        if job.records:
            with self._lock:
                self._writer.write([job])
        return job.result()

    def wait_replicated(
        self,
        stream: str,
        partition: int,
        position: int | tuple[int, int],
        timeout_s: float = 30.0,
        *,
        node: int | None = None,
    ) -> None:
        """Wait until a record cannot be lost: until all in-sync replicas have it on disk.

        With a `node`, wait until that node has it too, so that a read there finds it. `position` is the record's
        offset, or (leader epoch, offset) for a record written with acks=1, which another leader may have replaced;
        `produce` acknowledges as acks=all, so its offset suffices. It changes nothing, so a repeat is safe.

        Raises RecordCut if the record is lost, OffsetOutOfRange if it is deleted, RequestTimedOut, StreamNotFound,
        NotLeader if the node has no replica of the partition, NodeNotFound, NodeBusy, ServerUnreachable …

        >>> client.streams.create("vouchers")
        StreamInfo(...)
        >>> [place] = client.produce("vouchers", ["row 7"])
        >>> client.wait_replicated("vouchers", place.partition, place.offset)
        """
        self.run(wait_replicated(stream, partition, position, timeout_s, node, time.monotonic))

    @overload
    def snapshot(self, stream: str, *, at: Vector | None = None, lease: str | None = None) -> Snapshot: ...
    @overload
    def snapshot(self, stream: str, second: str, /, *more: str) -> JointSnapshot: ...
    def snapshot(
        self, stream: str, *more: str, at: Vector | None = None, lease: str | None = None
    ) -> Snapshot | JointSnapshot:
        """A keyed stream as it is now, including every acknowledged record, or as of `at`.

        It can be read for at least `snapshot.retention.ms`; in a `with` it stays open until the end of the block. With
        a `lease` it is the snapshot that the lease holds open. It has each transaction entirely or not at all. Several
        streams are read as of one moment: `client.snapshot("orders", "customers")["orders"]`.

        Raises StreamNotKeyed, StreamNotFound, SnapshotNotReached, SnapshotLeaseExpired, SnapshotLeaseNotFound,
        RequestInvalid …

        >>> client.streams.create("seats-by-row", config={"keyed": True})
        StreamInfo(...)
        >>> places = client.produce("seats-by-row", [NewRecord("free", key="7A"), NewRecord("taken", key="7A")])
        >>> {record.key: record.text for record in client.snapshot("seats-by-row")}
        {b'7A': 'taken'}
        >>> [record.text for record in client.snapshot("seats-by-row", at={0: 1})]
        ['free']
        """
        self._check()
        if more:
            if at is not None or lease is not None:
                raise RequestInvalid("at= and lease= are of one stream: leave them out, or name one stream")
            return JointSnapshot(self.run, self.run(joint_positions((stream, *more))))
        if lease is not None:
            if at is not None:
                raise RequestInvalid("the lease says where the snapshot is: leave out at= or lease=")
            held = self.run(find_lease(stream, lease))
            return Snapshot(self.run, stream, held.at, held)
        return Snapshot(self.run, stream, self.run(positions(stream)) if at is None else vector_of("at", at))

    def snapshots(
        self, stream: str, *, group: str, whole: bool = False, idle_s: float | None = None
    ) -> Iterator[GroupSnapshot]:
        """Snapshots of a keyed stream, each with the changes since the previous one.

        The first one has the changes since the group's committed snapshot. It is a whole snapshot if the group has
        committed none, or with `whole`, for a program that keeps no state. The next one comes when there are newer
        records; the iterator ends if none come for `idle_s`, otherwise never. At the end of each snapshot the applied
        state is one that existed. If a snapshot is neither read to its end nor committed, the next one has its changes
        again. A group is for one consumer at a time, and must have no members.

        Raises SnapshotStartOver if the group has read nothing for longer than `delete.retention.ms`: then drop the
        state and start with `whole`. StreamNotKeyed, StreamNotFound, ServerUnreachable …

        >>> client.streams.create("belts-by-flight", config={"keyed": True})
        StreamInfo(...)
        >>> places = client.produce("belts-by-flight", [NewRecord("3", key="LH 1"), NewRecord("5", key="LH 1")])
        >>> for snapshot in client.snapshots("belts-by-flight", group="belt-display", idle_s=0):
        ...     print({record.key: record.text for record in snapshot}, snapshot.at)
        ...     snapshot.commit()
        {b'LH 1': '5'} {0: 2}
        """
        self._check()
        return self._course(GroupCourse(stream, group, whole=whole, idle_s=idle_s))

    def _course(self, course: GroupCourse) -> Iterator[GroupSnapshot]:
        offsets = GroupOffsets(self._kafka, course, timeout_s=self._timeout_s)
        try:
            if not course.whole:
                course.begin(offsets.committed())
            while (at := self.run(course.next())) is not None:
                snapshot = GroupSnapshot(self.run, course, at, partial(offsets.commit, at, course.epochs))
                try:
                    yield snapshot
                finally:
                    with suppress(DuramenError):
                        snapshot.close()
                course.touched()
        finally:
            offsets.close()

    def queues(self, space: str) -> Queues:
        """The queues of a space, which `client.spaces.create` creates.

        >>> client.spaces.create("letterboxes")
        SpaceInfo(...)
        >>> client.queues("letterboxes").retrieve("nobody").entries
        []
        """
        self._check()
        return Queues(self.run, space)

    def consume(
        self,
        stream: str,
        *,
        offset: Where = "start",
        until: Where | None = "end",
        partition: int | None = None,
        group: str | None = None,
        idle_s: float | None = None,
    ) -> Iterator[Batch]:
        """Batches of records from `offset` to before `until`, from one partition or all.

        Both may be start, end, an offset, -N for the last N records of each partition, @TIME (ISO 8601, ms since 1970,
        or a time ago such as @-30s), or a datetime. `end` is the end at the start of the read; `until=None` reads
        without end, or until nothing has come for `idle_s`. Only acknowledged records are read. Reading changes
        nothing: after an error start again at the last batch's `next_offset`.

        With a `group` its members, in this process and others, share the partitions. Each starts at the group's
        committed offset, otherwise at `offset`, and commits a batch when it requests the next one: a batch being
        processed at a failure is read again. The group removes a member that requests nothing for a minute.

        Raises StreamNotFound, OffsetOutOfRange, RecordsLost, ServerUnreachable, RequestInvalid …

        >>> client.streams.create("steps")
        StreamInfo(...)
        >>> places = client.produce("steps", ["a", "b", "c"])
        >>> [(record.offset, record.text) for batch in client.consume("steps", offset=-2) for record in batch]
        [(1, 'b'), (2, 'c')]
        """
        self._check()
        what = wanted(stream, offset, until, partition, idle_s)
        return self._batches(reader_of(self._kafka, what, group, timeout_s=self._timeout_s))

    def _batches(self, reader: RecordReader) -> Iterator[Batch]:
        try:
            while not reader.done:
                for batch in reader.next():
                    yield batch
                    reader.processed(batch)
                self._check()
            reader.commit()
        finally:
            reader.close()


class Streams:
    """The streams of a node: `client.streams`.

    >>> client.streams.create("planes", partitions=3)
    StreamInfo(...)
    >>> [info.name for info in client.streams.list(prefix="pla")]
    ['planes']
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        subjects: Sequence[str] = (),
        config: Config | None = None,
    ) -> StreamInfo:
        """Create a stream, bound to NATS `subjects` if given; an existing stream with the same definition is kept.

        A repeat is safe. Each partition has `replication_factor` replicas; the default is the setting
        `default.replication.factor`, or the number of nodes if that is less. Raises StreamDiffers, NameInvalid,
        ConfigInvalid, SubjectInvalid, PartitionsInvalid, ReplicationFactorInvalid …

        >>> client.streams.create("rides", partitions=2).created
        True
        >>> client.streams.create("rides", partitions=2).created
        False
        """
        return self._client.run(streams.create_stream(name, partitions, replication_factor, subjects, config))

    def describe(self, name: str) -> StreamInfo:
        """A stream with its partitions. Raises StreamNotFound.

        >>> client.streams.describe("nobody-made-this")
        Traceback (most recent call last):
        duramen.base.errors.StreamNotFound: there is no stream nobody-made-this
        """
        return self._client.run(streams.describe_stream(name))

    def alter(self, name: str, *, config: Mapping[str, str | int | float | bool | None] | None = None) -> StreamInfo:
        """Set configs; None resets one to its default. A repeat is safe. Raises StreamNotFound, ConfigInvalid.

        >>> client.streams.create("bikes", config={"retention.ms": "1d"})
        StreamInfo(...)
        >>> client.streams.alter("bikes", config={"retention.ms": None, "retention.bytes": "1GiB"}).config
        {'retention.bytes': '1073741824'}
        """
        return self._client.run(streams.alter_stream(name, config))

    def add_partitions(self, name: str, partitions: int) -> StreamInfo:
        """Increase the number of partitions; keys map to other partitions then.

        Raises StreamNotFound, PartitionsInvalid.

        >>> client.streams.create("cars")
        StreamInfo(...)
        >>> len(client.streams.add_partitions("cars", 4).partitions)
        4
        """
        return self._client.run(streams.add_partitions(name, partitions))

    def delete(self, name: str) -> None:
        """Delete a stream with all its records. A repeat raises StreamNotFound.

        >>> client.streams.create("sparrows")
        StreamInfo(...)
        >>> client.streams.delete("sparrows")
        """
        self._client.run(streams.delete_stream(name))

    def list(self, *, prefix: str = "") -> list[StreamInfo]:
        """All streams, or those with the name `prefix`, sorted by name.

        >>> client.streams.list(prefix="there-is-none-like-this")
        []
        """
        return self._client.run(streams.list_streams(prefix))


class Groups:
    """The consumer groups of a node: `client.groups`.

    >>> client.groups.describe("nobody")
    Traceback (most recent call last):
    duramen.base.errors.GroupNotFound: there is no group nobody
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def describe(self, group: str) -> GroupDetails:
        """A group with its members, offsets and lag. Raises GroupNotFound.

        >>> client.streams.create("mail")
        StreamInfo(...)
        >>> places = client.produce("mail", ["a", "b"])
        >>> [record.text for batch in client.consume("mail", group="mail-readers") for record in batch]
        ['a', 'b']
        >>> offset = client.groups.describe("mail-readers").offsets[0]
        >>> offset.committed_offset, offset.lag_records
        (2, 0)
        """
        return self._client.run(http_api.describe_group(group))

    def reset(
        self,
        group: str,
        to: Where,
        *,
        streams: Sequence[str] | None = None,
        partition: int | None = None,
        dry_run: bool = False,
    ) -> Sequence[OffsetChange]:
        """Set the offsets of a group without members `to` a position (see `offset` of `consume`); returns the changes.

        Applies to the given streams, otherwise to those in which it has offsets; `dry_run` only returns the changes. A
        repeat is safe. Raises GroupNotFound, GroupNotEmpty.

        >>> client.streams.create("news")
        StreamInfo(...)
        >>> places = client.produce("news", ["a", "b"])
        >>> [record.text for batch in client.consume("news", group="news-readers") for record in batch]
        ['a', 'b']
        >>> client.groups.reset("news-readers", "start")
        [OffsetChange(stream='news', partition=0, before=2, after=0)]
        """
        return self._client.run(http_api.reset_group(group, text_of(to, "to"), streams, partition, dry_run=dry_run))

    def delete(self, group: str) -> None:
        """Delete a group without members, and its offsets. Raises GroupNotFound, GroupNotEmpty.

        >>> client.streams.create("spam")
        StreamInfo(...)
        >>> places = client.produce("spam", ["a", "b"])
        >>> [record.text for batch in client.consume("spam", group="spam-readers") for record in batch]
        ['a', 'b']
        >>> client.groups.delete("spam-readers")
        """
        self._client.run(http_api.delete_group(group))

    def list(self) -> list[GroupInfo]:
        """All groups, sorted by id.

        >>> client.streams.create("ads")
        StreamInfo(...)
        >>> places = client.produce("ads", ["a", "b"])
        >>> [record.text for batch in client.consume("ads", group="ads-readers") for record in batch]
        ['a', 'b']
        >>> [group.id for group in client.groups.list() if group.id.startswith("ads")]
        ['ads-readers']
        """
        return self._client.run(http_api.list_groups())
