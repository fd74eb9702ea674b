"""Entries of light queues through the Python client: in batches by several clients, and one at a time."""

import asyncio
import math
import multiprocessing
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, NamedTuple, Protocol

from duramen import aio
from duramen.base.errors import RequestInvalid
from duramen.client.api.client import connect
from duramen.client.api.queues.async_queues import AsyncQueues
from duramen.client.api.queues.queues import Queues

__all__ = [
    "VALUE_BYTES",
    "Connect",
    "PeerSession",
    "SingleRows",
    "Work",
    "change",
    "empty",
    "put_batches",
    "put_of_peer",
    "put_single",
    "queue_name",
    "read_back",
    "read_random",
]

_Put = Callable[[str, bytes], Awaitable[None]]

VALUE_BYTES: Final = 100
_BEGIN_S: Final = 3.0  # a process has started and connected by then
_CHANGED: Final = 1_000


class Work(NamedTuple):
    """What was done in how long, and the processor's time that the clients took."""

    rows: int
    took_s: float
    cpu_s: float

    @property
    def rate_hz(self) -> float:
        """So many a second."""
        return self.rows / self.took_s


def queue_name(number: int) -> str:
    """The queue of that number."""
    return f"user-{number:07d}"


def _values(count: int) -> list[bytes]:
    return [b"%0*d" % (VALUE_BYTES, number) for number in range(count)]


class _Client(NamedTuple):
    """One of several processes: they begin at the same time, on a queue each."""

    server: str
    space: str
    queue: str
    rows: int
    batch: int
    begin_s: float


def _together(work: Callable[[_Client], Work], of: Sequence[_Client]) -> Work:
    with ProcessPoolExecutor(len(of), multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(work, of))
    return Work(sum(one.rows for one in found), max(one.took_s for one in found), sum(one.cpu_s for one in found))


def _clients(server: str, space: str, clients: int, rows: int, batch: int) -> list[_Client]:
    begin_s = time.time() + _BEGIN_S
    return [
        _Client(server, space, f"hot-{number}", rows // clients, batch, begin_s) for number in range(clients)
    ]  # fmt: skip


def put_batches(server: str, space: str, clients: int, rows: int, batch: int) -> Work:
    """So many rows, a queue and a process a client."""
    return _together(_put, _clients(server, space, clients, rows, batch))


def _put(of: _Client) -> Work:
    values = _values(of.batch)
    with connect(of.server, timeout_s=120.0) as client:
        queues = client.queues(of.space)
        queues.retrieve(of.queue, limit=1)
        time.sleep(max(0.0, of.begin_s - time.time()))
        began_s, began_cpu_s, count = time.monotonic(), time.process_time(), 0
        while count < of.rows:
            count += len(queues.enqueue(of.queue, values))
        return Work(count, time.monotonic() - began_s, time.process_time() - began_cpu_s)


def read_back(server: str, space: str, clients: int, rows: int) -> Work:
    """Everything in these queues. Raises RequestInvalid where that is less."""
    found = _together(_read, _clients(server, space, clients, rows, 0))
    if found.rows < rows // clients * clients:
        raise RequestInvalid(f"{found.rows} of {rows} rows were read back")
    return found


def _read(of: _Client) -> Work:
    with connect(of.server, timeout_s=120.0) as client:
        queues = client.queues(of.space)
        time.sleep(max(0.0, of.begin_s - time.time()))
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        count = sum(entry.value is not None for entry in queues.read(of.queue))
        return Work(count, time.monotonic() - began_s, time.process_time() - began_cpu_s)


# -- one at a time ----------------------------------------------------------------------------------


class SingleRows(NamedTuple):
    """What was done, and how many queues there are then."""

    work: Work
    queues: int


def put_single(
    server: str, space: str, queues: int, rows: int, tasks: int, *, until_s: float = math.inf, own: bool = False
) -> SingleRows:
    """So many rows into random queues, each waited for by its task, or those until a time (`time.time`).

    With `own` each task has a client, and so a connection, of its own.
    """

    async def put() -> SingleRows:
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(await aio.connect(server, timeout_s=120.0))
                for _ in range(tasks if own else 1)
            ]
            targets = [client.queues(space) for client in clients]
            puts: list[_Put] = [partial(_enqueue, targets[task % len(targets)]) for task in range(tasks)]
            return await _put_all(puts, queues, rows, until_s)

    return asyncio.run(put())


async def _enqueue(target: AsyncQueues, queue: str, value: bytes) -> None:
    await target.enqueue(queue, [value])


class PeerSession(Protocol):
    """A connection to a peer."""

    async def put(self, queue: str, value: bytes) -> None:
        """Add an entry to a queue; it is durable when this returns."""

    def close(self) -> None:
        """Close it."""


Connect = Callable[[tuple[str, int], int], Awaitable[Sequence[PeerSession]]]
"""Opens so many connections to a peer that listens at a host and port."""


def put_of_peer(
    connect: Connect, place: tuple[str, int], queues: int, rows: int, tasks: int, *, until_s: float
) -> SingleRows:
    """The same rows to a peer, each task on a connection of its own."""

    async def put() -> SingleRows:
        sessions = await connect(place, tasks)
        try:
            return await _put_all([session.put for session in sessions], queues, rows, until_s)
        finally:
            for session in sessions:
                session.close()

    return asyncio.run(put())


async def _put_all(puts: Sequence[_Put], queues: int, rows: int, until_s: float) -> SingleRows:
    (value,) = _values(1)
    order = iter([number % queues for number in random.Random(7).sample(range(rows), rows)])
    made, count = set[int](), 0

    async def run(put: _Put) -> None:
        nonlocal count
        for number in order:
            await put(queue_name(number), value)
            made.add(number)
            count += 1
            if time.time() > until_s:
                return

    began_s, began_cpu_s = time.monotonic(), time.process_time()
    await asyncio.gather(*map(run, puts))
    return SingleRows(Work(count, time.monotonic() - began_s, time.process_time() - began_cpu_s), len(made))


def empty(server: str, space: str, queues: range, tasks: int) -> Work:
    """Take back everything in these queues, each in a request of its own."""
    return asyncio.run(_empty(server, space, queues, tasks))


async def _empty(server: str, space: str, queues: range, tasks: int) -> Work:
    order = iter(queues)
    async with await aio.connect(server, timeout_s=120.0) as client:
        target = client.queues(space)

        async def run() -> None:
            for number in order:
                page = await target.retrieve(queue_name(number))
                await target.delete(queue_name(number), [entry.position for entry in page.entries])

        began_s, began_cpu_s = time.monotonic(), time.process_time()
        await asyncio.gather(*(run() for _ in range(tasks)))
        return Work(len(queues), time.monotonic() - began_s, time.process_time() - began_cpu_s)


# -- reading and changing -----------------------------------------------------------------------------


def read_random(server: str, space: str, queues: Sequence[str], times: int) -> list[float]:
    """Seconds that 100 entries of a random one of these queues take, at the door, so many times."""
    chance, took_s = random.Random(11), list[float]()
    with connect(server, timeout_s=120.0) as client:
        target = client.queues(space)
        target.retrieve(queues[0])
        for _ in range(times):
            queue = chance.choice(queues)
            began_s = time.perf_counter()
            target.retrieve(queue, limit=100)
            took_s.append(time.perf_counter() - began_s)
    return took_s


def change(server: str, space: str, queues: Sequence[str], rows: int, *, delete: bool) -> Work:
    """Edit or delete so many entries of each queue, a thousand in a request."""
    with connect(server, timeout_s=120.0) as client:
        target = client.queues(space)
        pages = [(queue, page) for queue in queues for page in _pages(target, queue, rows)]
        began_s, began_cpu_s, count = time.monotonic(), time.process_time(), 0
        for queue, page in pages:
            if delete:
                target.delete(queue, page)
            else:
                target.edit(queue, [(position, b"edited") for position in page])
            count += len(page)
        return Work(count, time.monotonic() - began_s, time.process_time() - began_cpu_s)


def _pages(target: Queues, queue: str, rows: int) -> list[list[str]]:
    found, start = list[list[str]](), "start"
    while rows > 0:
        page = target.retrieve(queue, start, limit=min(rows, _CHANGED))
        if not page.entries:
            break
        found.append([entry.position for entry in page.entries])
        rows, start = rows - len(page.entries), page.next
    return found
