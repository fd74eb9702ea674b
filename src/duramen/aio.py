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

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeVar

from duramen.base.errors import ClientClosed, DuramenError
from duramen.client.http import HTTP_TIMEOUT_S, RECEIVE_BYTES, Exchange, Server, server_address
from duramen.face import asking
from duramen.face.asking import Config, Program, Question
from duramen.face.places import Where, text_of
from duramen.face.reading import Reader, wanted
from duramen.face.records import Batch, Place, Writable, encodable
from duramen.face.thread import OwnThread
from duramen.face.values import GroupDetails, GroupInfo, NodeInfo, OffsetChange, StreamInfo
from duramen.face.writing import Job, Writer, codec_of

__all__ = ["Client", "Groups", "Streams", "connect"]

_T = TypeVar("_T")


async def connect(server: str | None = None, *, timeout_s: float = 30.0, compression: str = "none") -> "Client":
    """A client of the node whose HTTP address is `server`; arguments and errors are those of `duramen.connect`.

    >>> other = await duramen.aio.connect(server)
    >>> (await other.node()).node_id
    1
    >>> await other.close()
    """
    client = Client(Server(server_address(server)), timeout_s=timeout_s, codec=codec_of(compression))
    await client.open()
    return client


async def _ask(server: Server, question: Question) -> Any:
    """Ask over HTTP. Raises ServerUnreachable, or the error that the node answered with."""
    exchange = Exchange(server.address, *question)
    try:
        async with asyncio.timeout(HTTP_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(server.host.strip("[]"), server.port)
    except OSError as error:
        raise server.unreachable(error) from None
    try:
        async with asyncio.timeout(HTTP_TIMEOUT_S):
            writer.write(exchange.question)
            while not exchange.take(await reader.read(RECEIVE_BYTES)):
                pass
    except OSError as error:
        raise exchange.lost(error) from None
    finally:
        writer.close()
    return exchange.answer()


class Client:
    """What a node does. Made by `connect`; tasks of one event loop may share it.

    >>> async with await duramen.aio.connect(server) as client:
    ...     print((await client.streams.create("belts", partitions=2)).name)
    belts
    """

    def __init__(self, server: Server, *, timeout_s: float, codec: int) -> None:
        """To be opened before it is used, as `connect` does."""
        self._server = server
        self._timeout_s = timeout_s
        self._codec = codec
        self._kafka = ""
        self._writing: _Writing | None = None
        self._readers: set[Reader] = set()
        self._closed = False
        self.streams = Streams(self)
        """Streams: create, list, describe, alter, delete."""
        self.groups = Groups(self)
        """Consumer groups: list, describe, reset, delete."""

    async def open(self) -> None:
        """Ask the node for its addresses. Raises ServerUnreachable."""
        self._kafka = self._server.kafka_of(await _ask(self._server, Question("GET", "/v1/node")))

    @property
    def server(self) -> str:
        """The node's HTTP address.

        >>> client.server == server
        True
        """
        return self._server.address

    async def close(self) -> None:
        """Close its connections; what is under way ends with ClientClosed.

        >>> other = await duramen.aio.connect(server)
        >>> await other.close()
        >>> await other.node()
        Traceback (most recent call last):
        duramen.base.errors.ClientClosed: the client is closed: connect again
        """
        self._closed = True
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
        """Ask what a program of `face.asking` asks."""
        self._check()
        answer = None
        try:
            while True:
                answer = await _ask(self._server, program.send(answer))
        except StopIteration as end:
            result: _T = end.value
            return result

    async def node(self) -> NodeInfo:
        """The node that answers. Raises ServerUnreachable.

        >>> (await client.node()).version == duramen.__version__
        True
        """
        return await self.run(asking.node())

    async def produce(self, stream: str, records: Iterable[Writable], *, partition: int | None = None) -> list[Place]:
        """Store records, all in one go, and say where they lie; more in `duramen.Client.produce`.

        Calls of several tasks at the same time travel together and share the node's disk syncs. A call that is
        cancelled may be stored or not; the others are not harmed.

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
            self._writing = _Writing(self._kafka, self._timeout_s, self._codec)
        return await self._writing.write(job)

    def consume(
        self,
        stream: str,
        *,
        offset: Where = "start",
        until: Where | None = "end",
        partition: int | None = None,
        idle_s: float | None = None,
    ) -> AsyncGenerator[Batch, None]:
        """Batches of records, for `async for`; arguments and errors are those of `duramen.Client.consume`.

        The next batch is fetched when it is asked for, so that a slow reader holds one answer in memory.

        >>> await client.streams.create("signs")
        StreamInfo(...)
        >>> places = await client.produce("signs", ["stop", "yield"])
        >>> [record.text async for batch in client.consume("signs", offset=1) for record in batch]
        ['yield']
        """
        self._check()
        return self._batches(
            Reader(self._kafka, wanted(stream, offset, until, partition, idle_s), timeout_s=self._timeout_s)
        )

    async def _batches(self, reader: Reader) -> AsyncGenerator[Batch, None]:
        thread = OwnThread("duramen-consume")
        self._readers.add(reader)
        try:
            while not reader.done:
                for batch in await thread.run(reader.next, reader.interrupt):
                    yield batch
                self._check()
        finally:
            self._readers.discard(reader)
            reader.close()
            thread.close()


class _Writing:
    """Calls of `produce`, as many in one go as came while the last were under way."""

    def __init__(self, kafka: str, timeout_s: float, codec: int) -> None:
        self._kafka = kafka
        self._timeout_s = timeout_s
        self._codec = codec
        self._writer = self._new_writer()
        self._thread = OwnThread("duramen-produce")
        self._waiting: list[tuple[Job, asyncio.Future[None]]] = []
        self._current: list[tuple[Job, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    def _new_writer(self) -> Writer:
        return Writer(self._kafka, timeout_s=self._timeout_s, codec=self._codec)

    async def write(self, job: Job) -> list[Place]:
        """Where its records lie. Raises why some are not stored."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((job, done))
        if self._task is None:
            self._task = loop.create_task(self._run())
        try:
            await done
        except asyncio.CancelledError:
            if self._current and all(other.cancelled() for _, other in self._current):
                self._writer.interrupt.set()
            raise
        return job.result()

    async def _run(self) -> None:
        while self._waiting:
            self._current = [(job, done) for job, done in self._waiting if not done.done()]
            self._waiting = []
            jobs = [job for job, _ in self._current]
            failed: BaseException | None = None
            try:
                await self._thread.run(partial(self._writer.write, jobs), self._writer.interrupt)
            except DuramenError as error:
                failed = error
            for _, done in self._current:
                if not done.done():
                    done.set_result(None) if failed is None else done.set_exception(failed)
            self._current = []
            if self._writer.interrupt.is_set:
                self._writer = self._new_writer()
        self._task = None

    async def close(self) -> None:
        """End what is under way and close."""
        self._writer.interrupt.set()
        task = self._task
        if task is not None:
            for _, done in self._waiting:
                if not done.done():
                    done.set_exception(
                        ClientClosed("the client was closed before this was written: nothing was stored")
                    )
            await asyncio.wait([task])
        self._writer.close()
        self._thread.close()


class Streams:
    """The streams of a node: `client.streams`; more in `duramen.face.client.Streams`.

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
        subjects: Sequence[str] = (),
        config: Config | None = None,
    ) -> StreamInfo:
        """Make a stream, bound to NATS `subjects` if they are given; one that is there and the same is left as it is.

        So it is safe to repeat. Raises StreamDiffers, NameInvalid, ConfigInvalid, SubjectInvalid, PartitionsInvalid …

        >>> (await client.streams.create("trams", partitions=2)).created
        True
        """
        return await self._client.run(asking.create_stream(name, partitions, subjects, config))

    async def describe(self, name: str) -> StreamInfo:
        """A stream as it is. Raises StreamNotFound.

        >>> await client.streams.describe("nobody-made-this")
        Traceback (most recent call last):
        duramen.base.errors.StreamNotFound: there is no stream nobody-made-this
        """
        return await self._client.run(asking.describe_stream(name))

    async def alter(
        self, name: str, *, config: Mapping[str, str | int | float | bool | None] | None = None
    ) -> StreamInfo:
        """Set configs; None sets one back to what it is without. Safe to repeat. Raises StreamNotFound, ConfigInvalid.

        >>> await client.streams.create("boats")
        StreamInfo(...)
        >>> (await client.streams.alter("boats", config={"retention.ms": "1d"})).config
        {'retention.ms': '86400000'}
        """
        return await self._client.run(asking.alter_stream(name, config, None))

    async def add_partitions(self, name: str, partitions: int) -> StreamInfo:
        """Have that many partitions in all. Keys go to others from then on. Raises StreamNotFound, PartitionsInvalid.

        >>> await client.streams.create("buses")
        StreamInfo(...)
        >>> len((await client.streams.add_partitions("buses", 4)).partitions)
        4
        """
        return await self._client.run(asking.alter_stream(name, None, partitions))

    async def delete(self, name: str) -> None:
        """Remove a stream with all its records, for good. Raises StreamNotFound: repeated, that is what it says.

        >>> await client.streams.create("gulls")
        StreamInfo(...)
        >>> await client.streams.delete("gulls")
        """
        await self._client.run(asking.delete_stream(name))

    async def list(self, *, prefix: str = "") -> list[StreamInfo]:
        """All streams, or those whose names begin with `prefix`, sorted by name.

        >>> await client.streams.list(prefix="there-is-none-like-this")
        []
        """
        return await self._client.run(asking.list_streams(prefix))


class Groups:
    """The consumer groups of a node: `client.groups`; more in `duramen.face.client.Groups`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def describe(self, group: str) -> GroupDetails:
        """A group with its members, its offsets and how far it lags behind. Raises GroupNotFound."""
        return await self._client.run(asking.describe_group(group))

    async def reset(
        self,
        group: str,
        to: Where,
        *,
        streams: Sequence[str] | None = None,
        partition: int | None = None,
        dry_run: bool = False,
    ) -> Sequence[OffsetChange]:
        """Let a group without members go on at `to` (as the `offset` of `consume`), and say what changed.

        In the streams given, else in those that it has offsets for; a `dry_run` only says what would change. Safe to
        repeat. Raises GroupNotFound, GroupNotEmpty.
        """
        program = asking.reset_group(group, text_of(to, "to"), streams, partition, dry_run=dry_run)
        return await self._client.run(program)

    async def delete(self, group: str) -> None:
        """Remove a group without members, with its offsets. Raises GroupNotFound, GroupNotEmpty."""
        await self._client.run(asking.delete_group(group))

    async def list(self) -> list[GroupInfo]:
        """All groups, sorted by id."""
        return await self._client.run(asking.list_groups())
