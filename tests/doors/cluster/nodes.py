"""Nodes that are nothing but their doors, on loopback, in one event loop."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple, TypeVar
from uuid import UUID

from duramen.base.errors import RequestInvalid
from duramen.base.ports import Buffer
from duramen.codec.cluster.channels import PeerChannel, Subject
from duramen.codec.cluster.handshake import Handshake, HandshakeIdentity, HandshakeSide
from duramen.doors.cluster.door import ClusterDoor
from duramen.doors.cluster.link import PeerLink
from duramen.doors.cluster.timer import TIMING, Later, Timer

T = TypeVar("T")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

SECRET = b"s" * 32
WAIT_S = 60.0
PATIENT = TIMING._replace(connect_ms=60_000, handshake_ms=60_001, alive_ms=60_002)
"""As the defaults, with waits that are told from any other by their length."""


def identity(node_id: int, cluster_id: UUID | None = None) -> HandshakeIdentity:
    return HandshakeIdentity(node_id, UUID(int=node_id), cluster_id)


class _Waiting:
    def __init__(self, clock: "Clock", delay_ms: int, action: Callable[[], None]) -> None:
        self.delay_ms = delay_ms
        self.action = action
        self._clock = clock

    def cancel(self) -> None:
        if self in self._clock.waiting:
            self._clock.waiting.remove(self)


class Clock:
    """Timers that a test fires by hand."""

    def __init__(self) -> None:
        self.waiting: list[_Waiting] = []
        self._more = asyncio.Event()

    def later(self, delay_ms: int, action: Callable[[], None]) -> Timer:
        self.waiting.append(_Waiting(self, delay_ms, action))
        self._more.set()
        return self.waiting[-1]

    def fire(self, delay_ms: int) -> int:
        """Do what was to be done after such a delay; how much that was."""
        due = [one for one in self.waiting if one.delay_ms == delay_ms]
        for one in due:
            one.cancel()
            one.action()
        return len(due)

    async def fire_next(self, delay_ms: int) -> None:
        """Do what is to be done after such a delay, as soon as there is something."""
        while not self.fire(delay_ms):
            self._more.clear()
            await soon(self._more.wait())


class _Never:
    def cancel(self) -> None:
        pass


def in_time(delay_ms: int, action: Callable[[], None]) -> Timer:
    """Nobody is ever too slow, and all else comes when it is to come."""
    if delay_ms in (PATIENT.handshake_ms, PATIENT.alive_ms):
        return _Never()
    return asyncio.get_running_loop().call_later(delay_ms / 1000, action)


class Heard(NamedTuple):
    """A message or request."""

    link: PeerLink
    subject: Subject
    number: int
    body: bytes


class Owner:
    """Keeps what it is told, in queues."""

    def __init__(self) -> None:
        self.links: asyncio.Queue[PeerLink] = asyncio.Queue()
        self.ends: asyncio.Queue[tuple[PeerLink, str]] = asyncio.Queue()
        self.heard: asyncio.Queue[Heard] = asyncio.Queue()
        self.itself: asyncio.Queue[str] = asyncio.Queue()

    def opened(self, link: PeerLink) -> None:
        self.links.put_nowait(link)

    def closed(self, link: PeerLink, why: str) -> None:
        self.ends.put_nowait((link, why))

    def found_itself(self, where: str) -> None:
        self.itself.put_nowait(where)

    def message(self, link: PeerLink, subject: Subject, body: Buffer) -> None:
        if bytes(body) == b"nonsense":
            raise RequestInvalid("that makes no sense")
        self.heard.put_nowait(Heard(link, subject, 0, bytes(body)))

    def request(self, link: PeerLink, subject: Subject, number: int, body: Buffer) -> None:
        self.heard.put_nowait(Heard(link, subject, number, bytes(body)))


class Node(NamedTuple):
    """A door that listens."""

    door: ClusterDoor
    owner: Owner
    port: int

    async def dial(self, other: "Node", channel: PeerChannel = PeerChannel.CONTROL, looked_for: int = -1) -> PeerLink:
        """A proven connection to the other."""
        self.door.dial("127.0.0.1", other.port, channel, looked_for)
        return await soon(self.owner.links.get())


def loopback() -> socket.socket:
    one = socket.socket()
    one.bind(("127.0.0.1", 0))
    return one


@contextlib.asynccontextmanager
async def node(me: HandshakeIdentity, secret: bytes = SECRET, later: Later = in_time) -> AsyncIterator[Node]:
    owner, listening = Owner(), loopback()
    counter = iter(range(1, 1_000_000))
    door = ClusterDoor(
        owner, me, secret, token=lambda size: (b"%d.%d" % (me.node_id, next(counter))).ljust(size, b"."),
        chance=lambda _: 0, later=later, timing=PATIENT,
    )  # fmt: skip
    await door.listen([listening])
    try:
        yield Node(door, owner, listening.getsockname()[1])
    finally:
        await door.close()


async def soon(what: Awaitable[T]) -> T:
    return await asyncio.wait_for(what, WAIT_S)


@contextlib.asynccontextmanager
async def raw(port: int) -> AsyncIterator[Streams]:
    """A connection of anybody."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await soon(writer.wait_closed())


@contextlib.asynccontextmanager
async def proven(
    port: int, me: HandshakeIdentity, channel: PeerChannel = PeerChannel.CONTROL
) -> AsyncIterator[Streams]:
    """A connection of somebody who has the secret, and does then whatever the test wants."""
    async with raw(port) as (reader, writer):
        handshake = Handshake(HandshakeSide.DIALER, me, SECRET, b"n" * 32, channel=channel)
        writer.write(handshake.take())
        while handshake.wanted_bytes:
            handshake.receive(await soon(reader.readexactly(handshake.wanted_bytes)))
            writer.write(handshake.take())
        assert handshake.refusal is None
        yield reader, writer
