"""Snapshots of keyed streams over HTTP, for both clients. Pure except for the classes with a client."""

from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol, Self, TypeAlias, TypeVar

from duramen.base.errors import DuramenError, RequestInvalid
from duramen.client.api.arguments import INT32_MAX, INT64_MAX, text, whole
from duramen.client.api.http import Program, Question
from duramen.client.api.leases import HeldLease, close_lease, open_lease, renew_lease
from duramen.client.api.records import Batch, Record
from duramen.client.api.snapshot_pages import Part, read_page
from duramen.client.api.values import value_of
from duramen.client.http import path_of

__all__ = ["AsyncSnapshot", "Run", "RunAsync", "Snapshot", "Vector", "positions", "vector_from", "vector_of"]

Vector: TypeAlias = Mapping[int, int]
"""A snapshot: of each partition the offset before which its records lie."""

_T = TypeVar("_T")


class Run(Protocol):
    """Runs a program to its end."""

    def __call__(self, program: Program[_T]) -> _T: ...


class RunAsync(Protocol):
    """Runs a program asynchronously to its end."""

    def __call__(self, program: Program[_T]) -> Awaitable[_T]: ...


def positions(stream: str) -> Program[dict[int, int]]:
    """The newest snapshot, including everything committed before."""
    answer = yield Question("GET", path_of("streams", text("stream", stream)) + "/snapshot")
    return vector_from(value_of(answer, dict[str, Any]))


def vector_from(answer: Mapping[str, Any]) -> dict[int, int]:
    """The vector of a snapshot as a node has it."""
    parts = value_of(answer.get("partitions"), list[dict[str, Any]])
    return {value_of(part.get("partition"), int): value_of(part.get("at"), int) for part in parts}


def vector_of(name: str, at: object) -> dict[int, int]:
    """A vector that a caller gives. Raises RequestInvalid."""
    if not isinstance(at, Mapping):
        raise RequestInvalid(f"{name} must map partitions to offsets, such as {{0: 17}}")
    return {
        whole(f"a partition of {name}", partition, 0, INT32_MAX): whole(f"an offset of {name}", offset, 0, INT64_MAX)
        for partition, offset in at.items()
    }


def _changed_parts(at: Vector, since: Vector) -> list[Part]:
    gone = sorted(since.keys() - at.keys())
    if gone:
        raise RequestInvalid(f"the snapshot has no partition {gone[0]}: it is not of the same stream")
    return [Part(partition, offset, since.get(partition)) for partition, offset in at.items()]


class Snapshot:
    """A keyed stream as it was at `at`: each key once, at its newest record; deletions are records without a value.

    Partition by partition, in the order of offsets. It can be read again, and by others that know `at`. In a `with` a
    lease holds it open until the end of the block; while it is read, the lease is renewed.

    >>> client.streams.create("pilots", config={"keyed": True})
    StreamInfo(...)
    >>> places = client.produce("pilots", [NewRecord("Ann", key="7"), NewRecord("Bob", key="9")])
    >>> before = client.snapshot("pilots")
    >>> places = client.produce("pilots", [NewRecord("Eve", key="7")])
    >>> now = client.snapshot("pilots")
    >>> [record.text for record in before], [record.text for record in now]
    (['Ann', 'Bob'], ['Bob', 'Eve'])
    >>> [record.text for record in now.changes_since(before)], now.at
    (['Eve'], {0: 3})
    >>> with client.snapshot("pilots") as held:
    ...     print([record.text for record in held])
    ['Bob', 'Eve']
    """

    def __init__(self, run: Run, stream: str, at: Vector, held: HeldLease | None = None) -> None:
        self._run = run
        self._held = held
        self.stream = stream
        self.at = dict(at)

    @property
    def lease(self) -> str | None:
        """The lease that holds it open; None where none does.

        >>> client.streams.create("towers", config={"keyed": True})
        StreamInfo(...)
        >>> client.snapshot("towers").lease is None
        True
        """
        return None if self._held is None else self._held.lease

    def hold(self) -> str:
        """Have a lease hold it open for `snapshot.lease.ms`, or for as long from now on; returns the lease.

        Others read the snapshot with `client.snapshot(stream, lease=…)`. Raises SnapshotTooOld, SnapshotLeaseExpired …

        >>> client.streams.create("hangars", config={"keyed": True})
        StreamInfo(...)
        >>> snapshot = client.snapshot("hangars")
        >>> lease = snapshot.hold()
        >>> client.snapshot("hangars", lease=lease).at == snapshot.at
        True
        >>> snapshot.close()
        """
        if self._held is None:
            self._held = self._run(open_lease(self.stream, self.at))
        else:
            self._run(renew_lease(self._held))
        return self._held.lease

    def close(self) -> None:
        """End its lease, if it has one. Raises SnapshotLeaseExpired …

        >>> client.streams.create("aprons", config={"keyed": True})
        StreamInfo(...)
        >>> snapshot = client.snapshot("aprons")
        >>> lease = snapshot.hold()
        >>> snapshot.close()
        >>> client.snapshot("aprons", lease=lease)
        Traceback (most recent call last):
        duramen.base.errors.SnapshotLeaseNotFound: there is no lease ...
        """
        held, self._held = self._held, None
        if held is not None:
            self._run(close_lease(held))

    def __enter__(self) -> Self:
        if self._held is None:
            self.hold()
        return self

    def __exit__(self, *_: object) -> None:
        # A lease of others is theirs to end; one that cannot be ended ends by itself.
        if self._held is not None and self._held.own:
            with suppress(DuramenError):
                self.close()

    def __iter__(self) -> Iterator[Record]:
        return self._records([Part(partition, offset, None) for partition, offset in self.at.items()])

    def changes_since(self, other: "Snapshot | Vector") -> Iterator[Record]:
        """The records, including deletions, that became visible since another snapshot and are visible in this one.

        Raises SnapshotStartOver where `delete.retention.ms` have gone by since, SnapshotTooOld, RequestInvalid.

        >>> client.streams.create("tails", config={"keyed": True})
        StreamInfo(...)
        >>> places = client.produce("tails", [NewRecord("A320", key="D-1"), NewRecord("B737", key="D-2")])
        >>> [record.text for record in client.snapshot("tails").changes_since({0: 1})]
        ['B737']
        """
        since = other.at if isinstance(other, Snapshot) else vector_of("other", other)
        return self._records(_changed_parts(self.at, since))

    def _keep(self) -> None:
        if self._held is not None and self._held.due:
            self._run(renew_lease(self._held))

    def batches(self) -> Iterator[Batch]:
        """The records in batches, which are decoded on first use.

        >>> client.streams.create("gliders", config={"keyed": True})
        StreamInfo(...)
        >>> places = client.produce("gliders", [NewRecord("ASK 21", key="D-1"), NewRecord("LS 4", key="D-2")])
        >>> [(len(batch), batch[0].text) for batch in client.snapshot("gliders").batches()]
        [(2, 'ASK 21')]
        """
        return self._batches([Part(partition, offset, None) for partition, offset in self.at.items()])

    def _records(self, parts: list[Part]) -> Iterator[Record]:
        for batch in self._batches(parts):
            for record in batch:
                if self._held is not None:
                    self._keep()
                yield record

    def _batches(self, parts: list[Part]) -> Iterator[Batch]:
        for part in parts:
            offset = 0
            while offset < part.at or not offset:
                self._keep()
                page = self._run(read_page(self.stream, part, offset, self.lease))
                if not page.is_empty:
                    yield page
                offset = max(offset + 1, page.next_offset)


class AsyncSnapshot:
    """A keyed stream as it was at `at`, for `async for`; more in `duramen.Snapshot`.

    >>> await client.streams.create("crews", config={"keyed": True})
    StreamInfo(...)
    >>> places = await client.produce("crews", [duramen.NewRecord("Ann", key="7"), duramen.NewRecord("Eve", key="7")])
    >>> async with await client.snapshot("crews") as snapshot:
    ...     print([record.text async for record in snapshot], snapshot.at)
    ['Eve'] {0: 2}
    """

    def __init__(self, run: RunAsync, stream: str, at: Vector, held: HeldLease | None = None) -> None:
        self._run = run
        self._held = held
        self.stream = stream
        self.at = dict(at)

    @property
    def lease(self) -> str | None:
        """The lease that holds it open; None where none does.

        >>> await client.streams.create("aio-towers", config={"keyed": True})
        StreamInfo(...)
        >>> (await client.snapshot("aio-towers")).lease is None
        True
        """
        return None if self._held is None else self._held.lease

    async def hold(self) -> str:
        """Have a lease hold it open; more in `duramen.Snapshot.hold`.

        >>> await client.streams.create("aio-hangars", config={"keyed": True})
        StreamInfo(...)
        >>> snapshot = await client.snapshot("aio-hangars")
        >>> lease = await snapshot.hold()
        >>> (await client.snapshot("aio-hangars", lease=lease)).at == snapshot.at
        True
        >>> await snapshot.close()
        """
        if self._held is None:
            self._held = await self._run(open_lease(self.stream, self.at))
        else:
            await self._run(renew_lease(self._held))
        return self._held.lease

    async def close(self) -> None:
        """End its lease, if it has one; more in `duramen.Snapshot.close`.

        >>> await client.streams.create("aio-aprons", config={"keyed": True})
        StreamInfo(...)
        >>> snapshot = await client.snapshot("aio-aprons")
        >>> lease = await snapshot.hold()
        >>> await snapshot.close()
        >>> snapshot.lease is None
        True
        """
        held, self._held = self._held, None
        if held is not None:
            await self._run(close_lease(held))

    async def __aenter__(self) -> Self:
        if self._held is None:
            await self.hold()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._held is not None and self._held.own:
            with suppress(DuramenError):
                await self.close()

    def __aiter__(self) -> AsyncIterator[Record]:
        return self._records([Part(partition, offset, None) for partition, offset in self.at.items()])

    def changes_since(self, other: "AsyncSnapshot | Vector") -> AsyncIterator[Record]:
        """The records that became visible since another snapshot; more in `duramen.Snapshot.changes_since`.

        >>> await client.streams.create("ramps", config={"keyed": True})
        StreamInfo(...)
        >>> places = await client.produce("ramps", [duramen.NewRecord(f"R{number}", key="7") for number in range(3)])
        >>> [record.text async for record in (await client.snapshot("ramps")).changes_since({0: 1})]
        ['R2']
        """
        since = other.at if isinstance(other, AsyncSnapshot) else vector_of("other", other)
        return self._records(_changed_parts(self.at, since))

    async def _keep(self) -> None:
        if self._held is not None and self._held.due:
            await self._run(renew_lease(self._held))

    def batches(self) -> AsyncIterator[Batch]:
        """The records, many at a time; more in `duramen.Snapshot.batches`.

        >>> await client.streams.create("aio-gliders", config={"keyed": True})
        StreamInfo(...)
        >>> places = await client.produce("aio-gliders", [duramen.NewRecord("ASK 21", key="D-1")])
        >>> [len(batch) async for batch in (await client.snapshot("aio-gliders")).batches()]
        [1]
        """
        return self._batches([Part(partition, offset, None) for partition, offset in self.at.items()])

    async def _records(self, parts: list[Part]) -> AsyncIterator[Record]:
        async for batch in self._batches(parts):
            for record in batch:
                await self._keep()
                yield record

    async def _batches(self, parts: list[Part]) -> AsyncIterator[Batch]:
        for part in parts:
            offset = 0
            while offset < part.at or not offset:
                await self._keep()
                page = await self._run(read_page(self.stream, part, offset, self.lease))
                if not page.is_empty:
                    yield page
                offset = max(offset + 1, page.next_offset)
