"""Reading as members of a group, and looking after groups, with both clients."""

import asyncio
import threading
from typing import Any

import pytest
from tests.client.api.conftest import Face

import duramen
from duramen import errors
from duramen.node.process import NodeProcess


class TestGoingOn:
    def test_where_the_group_has_committed(self, face: Face, stream: str) -> None:
        face.produce(stream, [duramen.NewRecord(str(n), partition=n % 3) for n in range(9)])
        assert sorted(face.texts(stream, group=stream)) == [str(n) for n in range(9)]
        assert face.texts(stream, group=stream) == []
        face.produce(stream, ["9"])
        assert face.texts(stream, group=stream) == ["9"]
        assert face.groups("describe", stream).members == []

    def test_what_was_worked_on_comes_again(self, face: Face, stream_name: str) -> None:
        face.streams("create", stream_name, partitions=2)
        for partition in (0, 1):
            face.produce(stream_name, ["x"], partition=partition)
        [seen] = face.consume(stream_name, group=stream_name, count=1)
        [again] = face.consume(stream_name, group=stream_name, count=1)
        assert len(seen) == len(again) == 1
        done = face.consume(stream_name, group=stream_name)
        assert sorted(batch.partition for batch in done) == [0, 1]

    def test_where_nothing_is_committed(self, face: Face, stream: str) -> None:
        face.produce(stream, ["a"] * 5, partition=0)
        assert len(face.texts(stream, group=stream, offset=-2)) == 2
        assert face.texts(stream, group=f"{stream}-2", offset="end", until=None, idle_s=0.1) == []

    @pytest.mark.parametrize(
        ("error", "options"),
        [
            (errors.RequestInvalid, {"group": "g", "partition": 0}),
            (errors.GroupIdInvalid, {"group": ""}),
        ],
    )
    def test_errors(self, face: Face, stream: str, error: type[Exception], options: dict[str, Any]) -> None:
        with pytest.raises(error):
            face.consume(stream, **options)

    def test_no_such_stream(self, face: Face) -> None:
        with pytest.raises(errors.StreamNotFound, match="makes one"):
            face.consume("nobody", group="g")


def test_members_share_the_partitions(node: NodeProcess, stream_name: str) -> None:
    """A member that comes takes over a part, one that is cancelled gives its part back at once."""

    async def read(client: duramen.aio.Client, seen: asyncio.Queue[duramen.Batch]) -> None:
        async for batch in client.consume(stream_name, group=stream_name, until=None):
            seen.put_nowait(batch)

    async def shared(client: duramen.aio.Client, count: int) -> None:
        """Wait until the group has that many members with a part."""
        while [bool(one.partitions) for one in (await client.groups.describe(stream_name)).members] != [True] * count:
            await client.node()

    async def run() -> None:
        async with await duramen.aio.connect(node.http) as client, asyncio.timeout(60):
            await client.streams.create(stream_name, partitions=2)
            seen: asyncio.Queue[duramen.Batch] = asyncio.Queue()
            await client.produce(stream_name, ["a"])
            tasks = [asyncio.create_task(read(client, seen))]
            await seen.get()
            tasks.append(asyncio.create_task(read(client, seen)))
            await shared(client, 2)
            tasks[0].cancel()
            await asyncio.wait([tasks[0]])
            await shared(client, 1)
            for partition in (0, 1):
                await client.produce(stream_name, ["late"], partition=partition)
            late: set[int] = set()
            while len(late) < 2:
                batch = await seen.get()
                late |= {batch.partition for record in batch if record.text == "late"}
            tasks[1].cancel()
            await asyncio.wait(tasks)
            assert (await client.groups.describe(stream_name)).members == []

    asyncio.run(run())
    for thread in [one for one in threading.enumerate() if one.name.startswith("duramen-consume") and not one.daemon]:
        thread.join(60)  # it has been told to end
        assert not thread.is_alive()


class TestLookingAfterThem:
    def test_from_listing_to_removing(self, face: Face, stream: str) -> None:
        face.produce(stream, ["a", "b"], partition=1)
        face.texts(stream, group=stream)
        face.produce(stream, ["c"], partition=1)
        [listed] = [info for info in face.groups("list") if info.id == stream]
        assert (listed.state, listed.members, listed.lag_records) == ("Empty", 0, 1)
        details = face.groups("describe", stream)
        lags = {one.partition: (one.committed_offset, one.lag_records) for one in details.offsets}
        assert lags[1] == (2, 1)
        changes = face.groups("reset", stream, -2, streams=[stream], partition=1, dry_run=True)
        assert changes == [duramen.OffsetChange(stream, 1, before=2, after=1)]
        assert face.groups("reset", stream, "start", partition=1)[0].after == 0
        assert face.texts(stream, group=stream) == ["a", "b", "c"]
        face.groups("delete", stream)
        with pytest.raises(errors.GroupNotFound):
            face.groups("describe", stream)

    def test_errors(self, face: Face) -> None:
        with pytest.raises(errors.GroupNotFound):
            face.groups("delete", "nobody/?")
        with pytest.raises(errors.RequestInvalid, match="to: 'first' is not a position in a log"):
            face.groups("reset", "nobody", "first")
