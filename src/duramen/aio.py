"""The asyncio client: what `duramen.connect` gives, awaited.

>>> async with await duramen.aio.connect(server) as client:
...     await client.streams.create("gates")
...     await client.produce("gates", ["A1", "B7"])
...     async for batch in client.consume("gates"):
...         print([record.text for record in batch])
StreamInfo(...)
[Place(partition=0, offset=0), Place(partition=0, offset=1)]
['A1', 'B7']
"""

import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Self, TypeVar, overload

from duramen.base.errors import ClientClosed, DuramenError, RequestInvalid
from duramen.client.api import http as http_api
from duramen.client.api import streams
from duramen.client.api.arguments import seconds, server_of
from duramen.client.api.async_requests import AsyncDoor as Door
from duramen.client.api.group_snapshots import AsyncGroupSnapshot as GroupSnapshot
from duramen.client.api.group_snapshots import GroupCourse, GroupOffsets
from duramen.client.api.http import Config, Program, Question
from duramen.client.api.inventory.async_inventory import AsyncInventory as Inventory
from duramen.client.api.joint_snapshots import AsyncJointSnapshot as JointSnapshot
from duramen.client.api.joint_snapshots import joint_positions
from duramen.client.api.leases import find_lease
from duramen.client.api.membership import reader_of
from duramen.client.api.offset_ranges import Where, text_of
from duramen.client.api.produce_batches import BatchedProduce as Together
from duramen.client.api.queues.async_queues import AsyncQueues as Queues
from duramen.client.api.queues.spaces import AsyncSpaces as Spaces
from duramen.client.api.reader import RecordReader as Reader
from duramen.client.api.reader import wanted
from duramen.client.api.records import Batch, Place, Writable, encodable
from duramen.client.api.replication_wait import wait_replicated
from duramen.client.api.snapshots import AsyncSnapshot as Snapshot
from duramen.client.api.snapshots import Vector, positions, vector_of
from duramen.client.api.thread import OwnThread
from duramen.client.api.values import GroupDetails, GroupInfo, NodeInfo, OffsetChange, StreamInfo
from duramen.client.api.writer import ProduceJob as Job
from duramen.client.api.writer import codec_of
from duramen.client.http import HttpNode as Server

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


async def connect(server: str | None = None, *, timeout_s: float = 30.0, compression: str = "none") -> "Client":
    """A client of the node whose HTTP address is `server`; arguments and errors are those of `duramen.connect`.

    >>> other = await duramen.aio.connect(server)
    >>> (await other.node()).node_id
    1
    >>> await other.close()
    """
    client = Client(server_of(server), timeout_s=seconds("timeout_s", timeout_s), codec=codec_of(compression))
    await client.open()
    return client


class Client:
    """The requests of a node. Made by `connect`; tasks of one event loop may share it.

    >>> async with await duramen.aio.connect(server) as client:
    ...     print((await client.streams.create("belts", partitions=2)).name)
    belts
    """

    def __init__(self, server: Server, *, timeout_s: float, codec: int) -> None:
        """It must be opened before use, as `connect` does."""
        self._server = server
        self._door = Door(server)
        self._timeout_s = timeout_s
        self._codec = codec
        self._kafka = ""
        self._writing: Together | None = None
        self._readers: set[Reader | GroupOffsets] = set()
        self._closed = False
        self.streams = Streams(self)
        """Streams: create, list, describe, alter, delete."""
        self.groups = Groups(self)
        """Consumer groups: list, describe, reset, delete."""
        self.inventory = Inventory(self.run)
        """The inventory: tenants, namespaces and topics."""
        self.spaces = Spaces(self.run)
        """Queue spaces: create, list, describe, delete."""

    async def open(self) -> None:
        """Ask the node for its addresses. Raises ServerUnreachable."""
        self._kafka = self._server.kafka_of(await self._door.ask(Question("GET", "/v1/node")))

    @property
    def server(self) -> str:
        """The node's HTTP address.

        >>> client.server == server
        True
        """
        return self._server.address

    async def close(self) -> None:
        """Close its connections; calls in progress end with ClientClosed.

        >>> other = await duramen.aio.connect(server)
        >>> await other.close()
        >>> await other.node()
        Traceback (most recent call last):
        duramen.base.errors.ClientClosed: the client is closed: connect again
        """
        self._closed = True
        self._door.close()
        for reader in self._readers:
            reader.interrupt.set()
        writing, self._writing = self._writing, None
        if writing is not None:
            await writing.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _check(self) -> None:
        if self._closed:
            raise ClientClosed("the client is closed: connect again")

    async def run(self, program: Program[_T]) -> _T:
        """Execute a program of `api.http`."""
        self._check()
        try:
            question = next(program)
            while True:
                try:
                    answer = await self._door.ask(question)
                except DuramenError as error:
                    question = program.throw(error)
                else:
                    question = program.send(answer)
        except StopIteration as end:
            result: _T = end.value
            return result

    async def node(self) -> NodeInfo:
        """The node that answers. Raises ServerUnreachable.

        >>> (await client.node()).version == duramen.__version__
        True
        """
        return await self.run(http_api.node())

    async def produce(self, stream: str, records: Iterable[Writable], *, partition: int | None = None) -> list[Place]:
        """Store records in one call; returns their places; more in `duramen.Client.produce`.

        Concurrent calls of several tasks are sent together and share the node's disk syncs. A cancelled call may be
        stored or not; the others are unaffected.

        >>> await client.streams.create("fares")
        StreamInfo(...)
        >>> await asyncio.gather(*(client.produce("fares", [f"{price}"]) for price in (10, 12)))
        [[Place(partition=0, offset=0)], [Place(partition=0, offset=1)]]
        """
        self._check()
        job = Job(stream, encodable(records, partition))
        if not job.records:
            return []
        if self._writing is None:
            self._writing = Together(self._kafka, self._timeout_s, self._codec)
        return await self._writing.write(job)

    async def wait_replicated(
        self,
        stream: str,
        partition: int,
        position: int | tuple[int, int],
        timeout_s: float = 30.0,
        *,
        node: int | None = None,
    ) -> None:
        """Wait until a record cannot be lost; arguments and errors are those of `duramen.Client`'s.

        >>> await client.streams.create("seats")
        StreamInfo(...)
        >>> [place] = await client.produce("seats", ["7A"])
        >>> await client.wait_replicated("seats", place.partition, place.offset, node=1)
        """
        await self.run(wait_replicated(stream, partition, position, timeout_s, node, time.monotonic))

    @overload
    async def snapshot(self, stream: str, *, at: Vector | None = None, lease: str | None = None) -> Snapshot: ...
    @overload
    async def snapshot(self, stream: str, second: str, /, *more: str) -> JointSnapshot: ...
    async def snapshot(
        self, stream: str, *more: str, at: Vector | None = None, lease: str | None = None
    ) -> Snapshot | JointSnapshot:
        """A keyed stream as it is now, or as of `at`; more in `duramen.Client.snapshot`.

        >>> await client.streams.create("lanes", config={"keyed": True})
        StreamInfo(...)
        >>> places = await client.produce("lanes", [duramen.NewRecord(f"LH {number}", key="3") for number in (1, 2)])
        >>> (await client.snapshot("lanes")).at
        {0: 2}
        >>> [record.text async for record in await client.snapshot("lanes", at={0: 1})]
        ['LH 1']
        """
        self._check()
        if more:
            if at is not None or lease is not None:
                raise RequestInvalid("at= and lease= are of one stream: leave them out, or name one stream")
            return JointSnapshot(self.run, await self.run(joint_positions((stream, *more))))
        if lease is not None:
            if at is not None:
                raise RequestInvalid("the lease says where the snapshot is: leave out at= or lease=")
            held = await self.run(find_lease(stream, lease))
            return Snapshot(self.run, stream, held.at, held)
        return Snapshot(self.run, stream, await self.run(positions(stream)) if at is None else vector_of("at", at))

    def snapshots(
        self, stream: str, *, group: str, whole: bool = False, idle_s: float | None = None
    ) -> AsyncGenerator[GroupSnapshot, None]:
        """Snapshots of a keyed stream, for `async for`; more in `duramen.Client.snapshots`.

        >>> await client.streams.create("gates-by-flight", config={"keyed": True})
        StreamInfo(...)
        >>> places = await client.produce("gates-by-flight", [duramen.NewRecord("A1", key="LH 1")])
        >>> async for snapshot in client.snapshots("gates-by-flight", group="gate-display", idle_s=0):
        ...     print({record.key: record.text async for record in snapshot}, snapshot.at)
        {b'LH 1': 'A1'} {0: 1}
        """
        self._check()
        return self._course(GroupCourse(stream, group, whole=whole, idle_s=idle_s))

    async def _course(self, course: GroupCourse) -> AsyncGenerator[GroupSnapshot, None]:
        thread = OwnThread("duramen-snapshots")
        offsets = GroupOffsets(self._kafka, course, timeout_s=self._timeout_s)
        self._readers.add(offsets)

        async def commit(at: Vector, epochs: Vector) -> None:
            by = OwnThread("duramen-commit") if offsets.closed else thread
            try:
                await by.run(partial(offsets.commit, at, epochs), offsets.interrupt)
            finally:
                if by is not thread:
                    by.close()

        try:
            if not course.whole:
                course.begin(await thread.run(offsets.committed, offsets.interrupt))
            while (at := await self.run(course.next())) is not None:
                snapshot = GroupSnapshot(self.run, course, at, partial(commit, at, course.epochs))
                try:
                    yield snapshot
                finally:
                    with suppress(DuramenError):
                        await snapshot.close()
                course.touched()
        finally:
            self._readers.discard(offsets)
            offsets.close()
            thread.close()

    def queues(self, space: str) -> Queues:
        """The queues of a space, which `client.spaces.create` creates.

        >>> await client.spaces.create("aio-letterboxes")
        SpaceInfo(...)
        >>> (await client.queues("aio-letterboxes").retrieve("nobody")).entries
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
    ) -> AsyncGenerator[Batch, None]:
        """Batches of records, for `async for`; arguments and errors are those of `duramen.Client.consume`.

        The next batch is fetched on request, so that a slow reader holds one response in memory.

        >>> await client.streams.create("signs")
        StreamInfo(...)
        >>> places = await client.produce("signs", ["stop", "yield"])
        >>> [record.text async for batch in client.consume("signs", offset=1) for record in batch]
        ['yield']
        """
        self._check()
        what = wanted(stream, offset, until, partition, idle_s)
        return self._batches(reader_of(self._kafka, what, group, timeout_s=self._timeout_s))

    async def _batches(self, reader: Reader) -> AsyncGenerator[Batch, None]:
        thread = OwnThread("duramen-consume")
        self._readers.add(reader)
        try:
            while not reader.done:
                for batch in await thread.run(reader.next, reader.interrupt):
                    yield batch
                    reader.processed(batch)
                self._check()
            if reader.leaves:
                await thread.run(reader.commit, reader.interrupt)
        finally:
            self._readers.discard(reader)
            try:
                if reader.leaves:
                    await thread.run(reader.close, reader.interrupt)
                else:
                    reader.close()
            finally:
                thread.close()


class Streams:
    """The streams of a node: `client.streams`; more in `duramen.client.api.client.Streams`.

    >>> [info.name for info in await client.streams.list(prefix="there-is-none-like-this")]
    []
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(
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

        >>> (await client.streams.create("trams", partitions=2)).created
        True
        """
        return await self._client.run(streams.create_stream(name, partitions, replication_factor, subjects, config))

    async def describe(self, name: str) -> StreamInfo:
        """A stream with its partitions. Raises StreamNotFound.

        >>> await client.streams.describe("nobody-made-this")
        Traceback (most recent call last):
        duramen.base.errors.StreamNotFound: there is no stream nobody-made-this
        """
        return await self._client.run(streams.describe_stream(name))

    async def alter(
        self, name: str, *, config: Mapping[str, str | int | float | bool | None] | None = None
    ) -> StreamInfo:
        """Set configs; None resets one to its default. A repeat is safe. Raises StreamNotFound, ConfigInvalid.

        >>> await client.streams.create("boats")
        StreamInfo(...)
        >>> (await client.streams.alter("boats", config={"retention.ms": "1d"})).config
        {'retention.ms': '86400000'}
        """
        return await self._client.run(streams.alter_stream(name, config))

    async def add_partitions(self, name: str, partitions: int) -> StreamInfo:
        """Increase the number of partitions; keys map to other partitions then.

        Raises StreamNotFound, PartitionsInvalid.

        >>> await client.streams.create("buses")
        StreamInfo(...)
        >>> len((await client.streams.add_partitions("buses", 4)).partitions)
        4
        """
        return await self._client.run(streams.add_partitions(name, partitions))

    async def delete(self, name: str) -> None:
        """Delete a stream with all its records. A repeat raises StreamNotFound.

        >>> await client.streams.create("gulls")
        StreamInfo(...)
        >>> await client.streams.delete("gulls")
        """
        await self._client.run(streams.delete_stream(name))

    async def list(self, *, prefix: str = "") -> list[StreamInfo]:
        """All streams, or those with the name `prefix`, sorted by name.

        >>> await client.streams.list(prefix="there-is-none-like-this")
        []
        """
        return await self._client.run(streams.list_streams(prefix))


class Groups:
    """The consumer groups of a node: `client.groups`; more in `duramen.client.api.client.Groups`.

    >>> await client.groups.describe("nobody")
    Traceback (most recent call last):
    duramen.base.errors.GroupNotFound: there is no group nobody
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def describe(self, group: str) -> GroupDetails:
        """A group with its members, offsets and lag. Raises GroupNotFound.

        >>> await client.streams.create("aio-mail")
        StreamInfo(...)
        >>> places = await client.produce("aio-mail", ["a", "b"])
        >>> [record.text async for batch in client.consume("aio-mail", group="aio-mail-readers") for record in batch]
        ['a', 'b']
        >>> offset = (await client.groups.describe("aio-mail-readers")).offsets[0]
        >>> offset.committed_offset, offset.lag_records
        (2, 0)
        """
        return await self._client.run(http_api.describe_group(group))

    async def reset(
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

        >>> await client.streams.create("aio-news")
        StreamInfo(...)
        >>> places = await client.produce("aio-news", ["a", "b"])
        >>> [record.text async for batch in client.consume("aio-news", group="aio-news-readers") for record in batch]
        ['a', 'b']
        >>> await client.groups.reset("aio-news-readers", "start")
        [OffsetChange(stream='aio-news', partition=0, before=2, after=0)]
        """
        program = http_api.reset_group(group, text_of(to, "to"), streams, partition, dry_run=dry_run)
        return await self._client.run(program)

    async def delete(self, group: str) -> None:
        """Delete a group without members, and its offsets. Raises GroupNotFound, GroupNotEmpty.

        >>> await client.streams.create("aio-spam")
        StreamInfo(...)
        >>> places = await client.produce("aio-spam", ["a", "b"])
        >>> [record.text async for batch in client.consume("aio-spam", group="aio-spam-readers") for record in batch]
        ['a', 'b']
        >>> await client.groups.delete("aio-spam-readers")
        """
        await self._client.run(http_api.delete_group(group))

    async def list(self) -> list[GroupInfo]:
        """All groups, sorted by id.

        >>> await client.streams.create("aio-ads")
        StreamInfo(...)
        >>> places = await client.produce("aio-ads", ["a", "b"])
        >>> [record.text async for batch in client.consume("aio-ads", group="aio-ads-readers") for record in batch]
        ['a', 'b']
        >>> [group.id for group in await client.groups.list() if group.id.startswith("aio-ads")]
        ['aio-ads-readers']
        """
        return await self._client.run(http_api.list_groups())
