"""One connection between two nodes: proves the secret, then carries frames both ways, and detects a dead peer.

Memory: until the secret is proven, a peer makes the node hold one handshake message at most, with a deadline.
Afterwards the node holds one incomplete frame and the send queue; if the queue is full, nothing more is accepted for
sending, and a peer that does not read for long is disconnected.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

from duramen.base.errors import RequestInvalid
from duramen.base.ports import Buffer
from duramen.codec.cluster.calls import Answered, PendingCalls
from duramen.codec.cluster.channels import LARGEST_BODY_BYTES, PeerChannel, Subject
from duramen.codec.cluster.frames import ALIVE, FrameReader, PeerFrame, PeerKind, encode_frame
from duramen.codec.cluster.handshake import (
    Handshake,
    HandshakeIdentity,
    HandshakeRefusal,
    HandshakeSide,
    HandshakeState,
    Peer,
)
from duramen.doors.cluster.timer import Later, LinkTiming, Timer

__all__ = ["LinkOwner", "PeerLink"]

_MESSAGE_BYTES: Final = 128  # more than any message of the handshake has
_WRITE_HIGH_BYTES: Final = 256 * 1024
_TURN_BYTES: Final = 16 * 1024
"""The bytes of one peer that are handled before others get their turn: some hundreds of the smallest messages."""


class LinkOwner(Protocol):
    """Receives events. Before the secret is proven only `closed` comes, and nothing after it."""

    def opened(self, link: "PeerLink") -> None:
        """Both have proven the secret."""

    def closed(self, link: "PeerLink", why: str) -> None:
        """The connection is closed; all pending requests have failed before."""

    def message(self, link: "PeerLink", subject: Subject, body: Buffer) -> None:
        """A message came. Raises RequestInvalid where it cannot be read: the connection ends."""

    def request(self, link: "PeerLink", subject: Subject, number: int, body: Buffer) -> None:
        """A request came, which is to be answered with its number. Raises as `message`."""


class PeerLink(asyncio.BufferedProtocol):
    """The protocol object of one connection."""

    def __init__(
        self, owner: LinkOwner, handshake: Handshake, later: Later, timing: LinkTiming, where: str = ""
    ) -> None:
        """`where` is the address that was dialed; of a peer that dialed it is found out."""
        self.where = where
        self.ended = asyncio.Event()
        self._owner = owner
        self._handshake = handshake
        self._later = later
        self._timing = timing
        self._transport: asyncio.Transport | None = None
        self._timer: Timer | None = None
        self._why = ""
        self._message = bytearray(_MESSAGE_BYTES)
        self._reader: FrameReader | None = None
        self._frames: deque[PeerFrame] = deque()  # that have come and are not taken yet: nothing is read meanwhile
        self._taken_bytes = 0
        self._paused = False
        self._calls = PendingCalls()
        self._most_waiting_bytes = 0
        # Since the last turn.
        self._heard = True
        self._said = True
        self._silent_turns = 0
        self._blocked_turns: int | None = None  # None: the peer reads what is written

    # -- state --------------------------------------------------------------------------------------

    @property
    def dialed(self) -> bool:
        """Whether this node dialed."""
        return self._handshake.side is HandshakeSide.DIALER

    @property
    def me(self) -> HandshakeIdentity:
        """The identity of this node."""
        return self._handshake.me

    @property
    def connected(self) -> bool:
        """Whether there is a connection, proven or not."""
        return self._transport is not None

    @property
    def open(self) -> bool:
        """Whether messages can be sent."""
        return self._reader is not None and self._transport is not None and not self._why

    @property
    def proven(self) -> bool:
        """Whether the secret was proven, also where the connection is gone by now."""
        return self._handshake.state is HandshakeState.PROVEN

    @property
    def refusal(self) -> HandshakeRefusal | None:
        """Why the secret was not proven, where that is over."""
        return self._handshake.refusal

    @property
    def peer(self) -> Peer:
        """The peer's identity, once it is proven. Raises RuntimeError before."""
        if self._handshake.peer is None or not self.proven:
            raise RuntimeError("the peer has not proven the secret")
        return self._handshake.peer

    @property
    def channel(self) -> PeerChannel:
        """The purpose of the connection."""
        return self.peer.channel

    # -- saying -------------------------------------------------------------------------------------

    def send(self, subject: Subject, *body: Buffer) -> bool:
        """Send a message; False where that is not possible now, and nothing is sent. Raises ValueError for too much."""
        return self._say(PeerKind.MESSAGE, subject, 0, body)

    def request(self, subject: Subject, done: Answered, *body: Buffer) -> bool:
        """Ask; `done` gets the answer. False where that is not possible now: then it is never called."""
        if not self._has_room(body):
            return False
        number = self._calls.begin(subject, done)
        return number is not None and self._say(PeerKind.REQUEST, subject, number, body)

    def answer(self, subject: Subject, number: int, *body: Buffer) -> None:
        """Answer a request; nothing where the connection is gone."""
        if not self._say(PeerKind.ANSWER, subject, number, body) and self.open:
            self.abort("it does not read its responses")

    def abort(self, why: str) -> None:
        """End the connection now, for that reason."""
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()

    def close(self, why: str) -> None:
        """End the connection once everything written is sent; at once if the peer does not read."""
        self._why = self._why or why
        if self._transport is not None:
            self._transport.close()
            self._set_timer(self._timing.closing_ms, self._transport.abort)

    def _has_room(self, body: Sequence[Buffer]) -> bool:
        if not self.open or self._transport is None:
            return False
        if sum(map(len, body)) > LARGEST_BODY_BYTES[self.channel]:
            raise ValueError(f"a body is larger than {self.channel.name} takes")
        return self._transport.get_write_buffer_size() <= self._most_waiting_bytes

    def _say(self, kind: PeerKind, subject: Subject, number: int, body: Sequence[Buffer]) -> bool:
        if not self._has_room(body) or self._transport is None:
            return False
        self._said = True
        self._transport.writelines(encode_frame(kind, subject, number, body))
        return True

    # -- asyncio ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio: the connection is there."""
        # uvloop's transports have the methods without the class.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        if not self.where:
            address = transport.get_extra_info("peername")
            self.where = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "a peer that has gone"
        self._set_timer(self._timing.handshake_ms, self._expire)
        self._transport.write(self._handshake.take())

    def get_buffer(self, _: int) -> memoryview:
        """Asyncio: where the next bytes go. Of a handshake no more is taken from the socket than it wants now."""
        if self._reader is not None:
            return self._reader.space()
        return memoryview(self._message)[: self._handshake.wanted_bytes or _MESSAGE_BYTES]

    def buffer_updated(self, count: int) -> None:
        """Asyncio: so many bytes came."""
        self._heard = True
        if self._why:
            return
        try:
            if self._reader is not None:
                self._frames += self._reader.filled(count)
                self._take_some()
            elif self._handshake.wanted_bytes:
                self._handshake.receive(memoryview(self._message)[:count])
                self._proceed()
        except RequestInvalid as error:
            self.abort(str(error))

    def eof_received(self) -> bool:
        """Asyncio: the peer has closed its side. No response would reach it: close."""
        return False

    def pause_writing(self) -> None:
        """Asyncio: the peer does not read for now."""
        self._blocked_turns = 0

    def resume_writing(self) -> None:
        """Asyncio: it reads again."""
        self._blocked_turns = None

    def connection_lost(self, error: Exception | None) -> None:
        """Asyncio: the connection is gone."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._handshake.lose()
        if self.refusal is not None:
            self._why = self._why or self.refusal.text
        self._why = self._why or (f"the connection was lost: {error}" if error else "the other side closed it")
        self._calls.drop()
        self._owner.closed(self, self._why)
        self.ended.set()

    # -- hearing ------------------------------------------------------------------------------------

    def _proceed(self) -> None:
        """Go on with the handshake."""
        if self._transport is None:
            return
        answer = self._handshake.take()
        if answer:
            self._transport.write(answer)
        if self.refusal is not None:
            self.close(self.refusal.text)
        elif self.proven:
            largest = LARGEST_BODY_BYTES[self.channel]
            self._reader = FrameReader(largest)
            self._most_waiting_bytes = 2 * largest
            self._set_timer(self._timing.alive_ms, self._turn)
            self._owner.opened(self)

    def _take_some(self) -> None:
        """Take frames that have come, as many as fit into a turn. Raises RequestInvalid."""
        while self._frames and self._taken_bytes < _TURN_BYTES:
            frame = self._frames.popleft()
            self._taken_bytes += len(frame.body)
            self._take(frame)
        if self._taken_bytes >= _TURN_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
            self._later(0, self._take_more)

    def _take_more(self) -> None:
        """The next turn of received bytes."""
        if self._transport is None or self._why:
            return
        self._heard = True  # nothing was read meanwhile
        self._paused, self._taken_bytes = False, 0
        self._transport.resume_reading()
        try:
            self._take_some()
        except RequestInvalid as error:
            self.abort(str(error))

    def _take(self, frame: PeerFrame) -> None:
        if self._why:
            return
        if frame.kind is PeerKind.MESSAGE:
            self._owner.message(self, frame.subject, frame.body)
        elif frame.kind is PeerKind.REQUEST:
            self._owner.request(self, frame.subject, frame.number, frame.body)
        else:
            self._calls.end(frame.subject, frame.number, frame.body)

    # -- time ---------------------------------------------------------------------------------------

    def _expire(self) -> None:
        self._handshake.expire()
        if self.refusal is not None:
            self.abort(self.refusal.text)

    def _turn(self) -> None:
        """Look whether the peer is there, and tell it that this node is."""
        if not self.open or self._transport is None:
            return
        self._silent_turns = 0 if self._heard else self._silent_turns + 1
        self._heard = False
        if self._blocked_turns is not None:
            self._blocked_turns += 1
        most = self._timing.silent_turns
        if self._silent_turns >= most:
            self.abort(f"nothing was received from it for {most * self._timing.alive_ms} ms")
            return
        longest = self._timing.blocked_turns
        if self._blocked_turns is not None and self._blocked_turns >= longest:
            self.abort(f"it has read nothing for {longest * self._timing.alive_ms} ms")
            return
        if not self._said:
            self._transport.write(ALIVE)
        self._said = False
        self._set_timer(self._timing.alive_ms, self._turn)

    def _set_timer(self, delay_ms: int, action: Callable[[], None]) -> None:
        """The one scheduled action, which replaces the one before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._later(delay_ms, action)
