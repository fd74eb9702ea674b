"""What only the asyncio client has: cancelling, calls that travel together, closing while something is under way."""

import asyncio
import gc
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

import duramen
from duramen import errors
from duramen.client.connection import BrokerConnection
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

ThreadsEnd = Callable[..., Awaitable[None]]


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def freezer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("freezer") / "data") as process:
        yield process


@pytest.fixture
def frozen(freezer: NodeProcess) -> Iterator[NodeProcess]:
    """A node that a test freezes; it is thawed afterwards, without streams."""
    yield freezer
    freezer.signal(signal.SIGCONT)
    with duramen.connect(freezer.http) as client:
        client.streams.delete("s")


@pytest.fixture
def threads_end() -> ThreadsEnd:
    """Waits until the client's threads of that name have ended, but for those that were there before the test."""
    before = set(threading.enumerate())

    async def wait(prefix: str = "duramen-") -> None:
        for thread in set(threading.enumerate()) - before:
            if thread.name.startswith(prefix):
                await asyncio.to_thread(thread.join, 60)
                assert not thread.is_alive()

    return wait


def when_sent(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """An event of the running loop: a produce request has gone to the node."""
    loop, event, send = asyncio.get_running_loop(), asyncio.Event(), BrokerConnection.send

    def watched(connection: BrokerConnection, api: ApiKey, *rest: Any, **named: Any) -> int:
        sent = send(connection, api, *rest, **named)
        if api is ApiKey.PRODUCE:
            loop.call_soon_threadsafe(event.set)
        return sent

    monkeypatch.setattr(BrokerConnection, "send", watched)
    return event


async def first(batches: AsyncIterator[duramen.Batch]) -> duramen.Batch:
    async for batch in batches:
        return batch
    raise AssertionError("nothing came")


def test_calls_of_many_tasks_travel_together(loop: asyncio.Runner, node: NodeProcess, stream_name: str) -> None:
    async def run() -> None:
        async with await duramen.aio.connect(node.http) as client:
            await client.streams.create(stream_name)
            calls = (client.produce(stream_name, [f"{n}a", f"{n}b"]) for n in range(500))
            places = await asyncio.gather(*calls)
            texts = {r.offset: r.text async for batch in client.consume(stream_name) for r in batch}
            for n, (one, two) in enumerate(places):
                assert (texts[one.offset], texts[two.offset]) == (f"{n}a", f"{n}b")

    loop.run(run())


def test_more_requests_at_once_than_a_node_answers_share_connections(loop: asyncio.Runner, node: NodeProcess) -> None:
    async def run() -> None:
        async with await duramen.aio.connect(node.http) as client:
            await client.spaces.create("crowded", shards=1)
            queues = client.queues("crowded")
            calls = [queues.enqueue("ann", ["a"], request_id=f"request {number}") for number in range(150)]
            assert len(await asyncio.gather(*calls)) == 150
            await client.spaces.delete("crowded")

    loop.run(run())


def test_what_is_wrong_with_one_call_harms_no_other(loop: asyncio.Runner, node: NodeProcess, stream_name: str) -> None:
    async def run() -> None:
        async with await duramen.aio.connect(node.http) as client:
            await client.streams.create(stream_name)
            results = await asyncio.gather(
                client.produce(stream_name, ["a"]),
                client.produce(stream_name, [bytes(2_000_000)]),
                client.produce("nobody", ["b"]),
                client.produce(stream_name, ["c"]),
                return_exceptions=True,
            )
            assert [type(result) for result in results] == [list, errors.BatchTooLarge, errors.StreamNotFound, list]
            assert [r.text async for batch in client.consume(stream_name) for r in batch] == ["a", "c"]

    loop.run(run())


class TestCancelling:
    def test_a_reader_that_waits(
        self, loop: asyncio.Runner, node: NodeProcess, stream_name: str, threads_end: ThreadsEnd
    ) -> None:
        async def run() -> None:
            async with await duramen.aio.connect(node.http) as client:
                await client.streams.create(stream_name)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await first(client.consume(stream_name, until=None))
                await threads_end()
                await client.produce(stream_name, ["x"])
                assert (await first(client.consume(stream_name, until=None)))[0].text == "x"

        loop.run(run())

    def test_everything_while_the_node_is_frozen(
        self, loop: asyncio.Runner, frozen: NodeProcess, threads_end: ThreadsEnd, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def run() -> None:
            client = await duramen.aio.connect(frozen.http, timeout_s=600)
            await client.streams.create("s")
            await client.produce("s", ["a"])
            reading = asyncio.create_task(first(client.consume("s", offset="end", until=None)))
            await asyncio.sleep(0)
            frozen.signal(signal.SIGSTOP)
            sent = when_sent(monkeypatch)
            tasks = [reading, asyncio.create_task(client.produce("s", ["b"])), asyncio.create_task(client.node())]
            await sent.wait()
            for task in tasks:
                task.cancel()
            async with asyncio.timeout(60):
                results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(result) for result in results] == [asyncio.CancelledError] * 3
            frozen.signal(signal.SIGCONT)
            # Another producer goes on, whatever became of the call that was cancelled.
            await client.produce("s", ["c"])
            texts = [r.text async for batch in client.consume("s") for r in batch]
            assert texts in (["a", "c"], ["a", "b", "c"])
            await client.close()
            await threads_end()

        loop.run(run())

    def test_one_of_many_calls_leaves_the_others(
        self, loop: asyncio.Runner, frozen: NodeProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def run() -> None:
            async with await duramen.aio.connect(frozen.http, timeout_s=600) as client:
                await client.streams.create("s")
                await client.produce("s", ["a"])
                frozen.signal(signal.SIGSTOP)
                sent = when_sent(monkeypatch)
                tasks = [asyncio.create_task(client.produce("s", [text])) for text in "bcd"]
                await sent.wait()
                late = [asyncio.create_task(client.produce("s", [text])) for text in "ef"]
                await asyncio.sleep(0)
                tasks[0].cancel()
                late[0].cancel()
                frozen.signal(signal.SIGCONT)
                results = await asyncio.gather(*tasks, *late, return_exceptions=True)
                kinds = [type(result) for result in results]
                assert kinds == [asyncio.CancelledError, list, list, asyncio.CancelledError, list]
                texts = [r.text async for batch in client.consume("s") for r in batch]
                assert texts == ["a", "b", "c", "d", "f"]

        loop.run(run())


class TestClosing:
    def test_it_ends_what_is_under_way(
        self, loop: asyncio.Runner, frozen: NodeProcess, threads_end: ThreadsEnd, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def run() -> None:
            client = await duramen.aio.connect(frozen.http, timeout_s=600)
            await client.streams.create("s")
            await client.produce("s", ["a"])
            reading = asyncio.create_task(first(client.consume("s", offset="end", until=None)))
            await asyncio.sleep(0)
            frozen.signal(signal.SIGSTOP)
            sent = when_sent(monkeypatch)
            writing = asyncio.create_task(client.produce("s", ["b"]))
            await sent.wait()
            waiting = asyncio.create_task(client.produce("s", ["c"]))
            await asyncio.sleep(0)
            async with asyncio.timeout(60):
                await client.close()
                results = await asyncio.gather(reading, writing, waiting, return_exceptions=True)
            assert [type(result) for result in results] == [errors.ClientClosed] * 3
            assert "1 more may be: to repeat may store them twice" in str(results[1])
            assert "nothing was stored" in str(results[2])
            await threads_end()

        loop.run(run())

    def test_a_loop_that_was_left_early(
        self, loop: asyncio.Runner, node: NodeProcess, stream_name: str, threads_end: ThreadsEnd
    ) -> None:
        async def run() -> None:
            async with await duramen.aio.connect(node.http) as client:
                await client.streams.create(stream_name)
                await client.produce(stream_name, ["a"])
                async for batch in client.consume(stream_name, until=None):
                    assert batch[0].text == "a"
                    break
                gc.collect()
                await asyncio.sleep(0)
                await threads_end("duramen-consume")

        loop.run(run())
