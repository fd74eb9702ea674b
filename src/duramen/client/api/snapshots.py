"""Snapshots of keyed streams over HTTP, as both clients read them. Pure but for the classes that have a client."""

from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar
from urllib.parse import urlencode

import msgspec

from duramen.base.errors import RequestInvalid, ServerUnreachable
from duramen.client.api.arguments import INT32_MAX, INT64_MAX, text, whole
from duramen.client.api.http import Program, Question
from duramen.client.api.records import Record
from duramen.client.api.values import value_of
from duramen.client.http import path_of
from duramen.codec.jsonbytes import bytes_of

__all__ = ["AsyncSnapshot", "Snapshot", "Vector", "positions", "vector_of"]

_PAGE_RECORDS: Final = 10_000

Vector: TypeAlias = Mapping[int, int]
"""A snapshot: of each partition the offset before which its records lie."""

_T = TypeVar("_T")


class _Run(Protocol):
    def __call__(self, program: Program[_T]) -> _T: ...


class _RunAsync(Protocol):
    def __call__(self, program: Program[_T]) -> Awaitable[_T]: ...


class _Page(NamedTuple):
    records: list[Record]
    next_offset: int | None


class _Part(NamedTuple):
    """What is read of a partition: the snapshot, or with `since` the changes."""

    partition: int
    at: int
    since: int | None


def positions(stream: str) -> Program[dict[int, int]]:
    """The newest snapshot, once it has what was committed before."""
    answer = value_of((yield Question("GET", path_of("streams", text("stream", stream)) + "/snapshot")), dict[str, Any])
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


def _page(stream: str, part: _Part, offset: int) -> Program[_Page]:
    asked = {"partition": part.partition, "at": part.at, "offset": offset, "limit": _PAGE_RECORDS}
    if part.since is not None:
        asked["since"] = part.since
    path = path_of("streams", stream) + f"/snapshot/records?{urlencode(asked)}"
    answer = value_of((yield Question("GET", path)), dict[str, Any])
    rows = value_of(answer.get("records"), list[dict[str, Any]])
    try:
        records = [_record(row) for row in rows]
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise ServerUnreachable(f"what answers is no node of Duramen: {error}") from None
    following = answer.get("next")
    return _Page(records, None if following is None else value_of(following, int))


def _record(row: Mapping[str, Any]) -> Record:
    headers = tuple(
        ((bytes_of(name) or b"").decode(errors="replace"), bytes_of(value)) for name, value in row["headers"]
    )
    return Record(
        row["topic"], row["partition"], row["offset"], row["timestamp"], bytes_of(row["key"]), bytes_of(row["value"]),
        headers,
    )  # fmt: skip


def _changed_parts(at: Vector, since: Vector) -> list[_Part]:
    gone = sorted(since.keys() - at.keys())
    if gone:
        raise RequestInvalid(f"the snapshot has no partition {gone[0]}: it is not of the same stream")
    return [_Part(partition, offset, since.get(partition)) for partition, offset in at.items()]


class Snapshot:
    """A keyed stream as it was at `at`: each key once, at its newest record; deletions are records without a value.

    Partition by partition, in the order of offsets. It can be read again, and by others that know `at`.

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
    """

    def __init__(self, run: _Run, stream: str, at: Vector) -> None:
        self._run = run
        self.stream = stream
        self.at = dict(at)

    def __iter__(self) -> Iterator[Record]:
        return self._records([_Part(partition, offset, None) for partition, offset in self.at.items()])

    def changes_since(self, other: "Snapshot | Vector") -> Iterator[Record]:
        """The records that became visible since another snapshot and are visible in this one, deletions among them.

        Raises SnapshotStartOver where `delete.retention.ms` have gone by since, SnapshotTooOld, RequestInvalid.

        >>> client.streams.create("tails", config={"keyed": True})
        StreamInfo(...)
        >>> places = client.produce("tails", [NewRecord("A320", key="D-1"), NewRecord("B737", key="D-2")])
        >>> [record.text for record in client.snapshot("tails").changes_since({0: 1})]
        ['B737']
        """
        since = other.at if isinstance(other, Snapshot) else vector_of("other", other)
        return self._records(_changed_parts(self.at, since))

    def _records(self, parts: list[_Part]) -> Iterator[Record]:
        for part in parts:
            offset: int | None = 0
            while offset is not None:
                page = self._run(_page(self.stream, part, offset))
                yield from page.records
                offset = page.next_offset


class AsyncSnapshot:
    """A keyed stream as it was at `at`, for `async for`; more in `duramen.Snapshot`.

    >>> await client.streams.create("crews", config={"keyed": True})
    StreamInfo(...)
    >>> places = await client.produce("crews", [duramen.NewRecord("Ann", key="7"), duramen.NewRecord("Eve", key="7")])
    >>> snapshot = await client.snapshot("crews")
    >>> [record.text async for record in snapshot], snapshot.at
    (['Eve'], {0: 2})
    """

    def __init__(self, run: _RunAsync, stream: str, at: Vector) -> None:
        self._run = run
        self.stream = stream
        self.at = dict(at)

    def __aiter__(self) -> AsyncIterator[Record]:
        return self._records([_Part(partition, offset, None) for partition, offset in self.at.items()])

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

    async def _records(self, parts: list[_Part]) -> AsyncIterator[Record]:
        for part in parts:
            offset: int | None = 0
            while offset is not None:
                page = await self._run(_page(self.stream, part, offset))
                for record in page.records:
                    yield record
                offset = page.next_offset
