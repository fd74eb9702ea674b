"""Snapshots over several keyed streams: each transaction is in all of them or in none."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlencode

from duramen.base.errors import DuramenError, RequestInvalid
from duramen.client.api.arguments import text
from duramen.client.api.http import Program, Question
from duramen.client.api.snapshots import AsyncSnapshot, Run, RunAsync, Snapshot, Vector, vector_from
from duramen.client.api.values import value_of

__all__ = ["AsyncJointSnapshot", "JointSnapshot", "joint_positions"]


def joint_positions(streams: Sequence[str]) -> Program[dict[str, dict[int, int]]]:
    """The newest snapshot of each stream, including everything committed before. Raises RequestInvalid."""
    names = [text("stream", stream) for stream in streams]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RequestInvalid(f"the stream {twice[0]} is named twice")
    path = f"/v1/snapshot?{urlencode({'streams': ','.join(names)})}"
    answer = value_of((yield Question("GET", path)), dict[str, Any])
    found = value_of(answer.get("streams"), list[dict[str, Any]])
    return {value_of(one.get("stream"), str): vector_from(one) for one in found}


class JointSnapshot(Mapping[str, Snapshot]):
    """Keyed streams as of one moment, by their names: the result of `client.snapshot` for several.

    A transaction over several of them is in all of their snapshots or in none. In a `with` leases hold all of them open
    until the end of the block.

    >>> for stream in ("joint-planes", "joint-crews"):
    ...     client.streams.create(stream, config={"keyed": True})
    StreamInfo(...)
    StreamInfo(...)
    >>> places = client.produce("joint-planes", [NewRecord("A320", key="17")])
    >>> places = client.produce("joint-crews", [NewRecord("Ann", key="3")])
    >>> with client.snapshot("joint-planes", "joint-crews") as snapshot:
    ...     for stream in snapshot:
    ...         print(stream, [record.text for record in snapshot[stream]])
    joint-planes ['A320']
    joint-crews ['Ann']
    """

    def __init__(self, run: Run, at: Mapping[str, Vector]) -> None:
        self._snapshots = {stream: Snapshot(run, stream, vector) for stream, vector in at.items()}

    @property
    def at(self) -> dict[str, dict[int, int]]:
        """For each stream, the offset of each partition before which its records lie.

        >>> client.streams.create("joint-gates", config={"keyed": True})
        StreamInfo(...)
        >>> client.streams.create("joint-seats", config={"keyed": True})
        StreamInfo(...)
        >>> client.snapshot("joint-gates", "joint-seats").at
        {'joint-gates': {0: 0}, 'joint-seats': {0: 0}}
        """
        return {stream: snapshot.at for stream, snapshot in self.items()}

    def __getitem__(self, stream: str) -> Snapshot:
        return self._snapshots[stream]

    def __iter__(self) -> Iterator[str]:
        return iter(self._snapshots)

    def __len__(self) -> int:
        return len(self._snapshots)

    def hold(self) -> dict[str, str]:
        """Open leases that hold all of them open for `snapshot.lease.ms`; returns the lease of each stream.

        Raises SnapshotTooOld, SnapshotLeaseExpired …

        >>> client.streams.create("joint-hangars", config={"keyed": True})
        StreamInfo(...)
        >>> client.streams.create("joint-towers", config={"keyed": True})
        StreamInfo(...)
        >>> snapshot = client.snapshot("joint-hangars", "joint-towers")
        >>> sorted(snapshot.hold())
        ['joint-hangars', 'joint-towers']
        >>> snapshot.close()
        """
        return {stream: snapshot.hold() for stream, snapshot in self.items()}

    def close(self) -> None:
        """End their leases, if any; leases that cannot be ended expire.

        >>> client.streams.create("joint-aprons", config={"keyed": True})
        StreamInfo(...)
        >>> client.streams.create("joint-docks", config={"keyed": True})
        StreamInfo(...)
        >>> client.snapshot("joint-aprons", "joint-docks").close()
        """
        for snapshot in self.values():
            with suppress(DuramenError):
                snapshot.close()

    def __enter__(self) -> Self:
        try:
            self.hold()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncJointSnapshot(Mapping[str, AsyncSnapshot]):
    """Keyed streams as of one moment, by their names; more in `duramen.JointSnapshot`.

    >>> for stream in ("aio-orders", "aio-customers"):
    ...     created = await client.streams.create(stream, config={"keyed": True})
    >>> places = await client.produce("aio-customers", [duramen.NewRecord("Ann", key="3")])
    >>> async with await client.snapshot("aio-orders", "aio-customers") as snapshot:
    ...     for stream in snapshot:
    ...         print(stream, [record.text async for record in snapshot[stream]])
    aio-orders []
    aio-customers ['Ann']
    """

    def __init__(self, run: RunAsync, at: Mapping[str, Vector]) -> None:
        self._snapshots = {stream: AsyncSnapshot(run, stream, vector) for stream, vector in at.items()}

    @property
    def at(self) -> dict[str, dict[int, int]]:
        """For each stream, the offset of each partition before which its records lie.

        >>> created = await client.streams.create("aio-joint-gates", config={"keyed": True})
        >>> created = await client.streams.create("aio-joint-seats", config={"keyed": True})
        >>> (await client.snapshot("aio-joint-gates", "aio-joint-seats")).at
        {'aio-joint-gates': {0: 0}, 'aio-joint-seats': {0: 0}}
        """
        return {stream: snapshot.at for stream, snapshot in self.items()}

    def __getitem__(self, stream: str) -> AsyncSnapshot:
        return self._snapshots[stream]

    def __iter__(self) -> Iterator[str]:
        return iter(self._snapshots)

    def __len__(self) -> int:
        return len(self._snapshots)

    async def hold(self) -> dict[str, str]:
        """Open leases that hold all of them open; more in `duramen.JointSnapshot.hold`.

        >>> created = await client.streams.create("aio-joint-hangars", config={"keyed": True})
        >>> created = await client.streams.create("aio-joint-towers", config={"keyed": True})
        >>> snapshot = await client.snapshot("aio-joint-hangars", "aio-joint-towers")
        >>> sorted(await snapshot.hold())
        ['aio-joint-hangars', 'aio-joint-towers']
        >>> await snapshot.close()
        """
        return {stream: await snapshot.hold() for stream, snapshot in self.items()}

    async def close(self) -> None:
        """End their leases, if any; more in `duramen.JointSnapshot.close`.

        >>> created = await client.streams.create("aio-joint-aprons", config={"keyed": True})
        >>> created = await client.streams.create("aio-joint-docks", config={"keyed": True})
        >>> await (await client.snapshot("aio-joint-aprons", "aio-joint-docks")).close()
        """
        for snapshot in self.values():
            with suppress(DuramenError):
                await snapshot.close()

    async def __aenter__(self) -> Self:
        try:
            await self.hold()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
