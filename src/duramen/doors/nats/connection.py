"""One connection to a NATS server: sends CONNECT, passes messages on chunk by chunk, and detects a dead peer."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol, cast

from duramen import __version__
from duramen.base.errors import DuramenError, NatsProtocolInvalid, ServerUnreachable
from duramen.codec.nats import (
    PING,
    PONG,
    Connect,
    Info,
    Message,
    Parser,
    ServerError,
    Signal,
    encode_connect,
    encode_sub,
    encode_unsub,
)
from duramen.doors.nats.address import ServerAddress

__all__ = ["ConnectionOwner", "NatsClientConnection"]

_WRITE_HIGH_BYTES: Final = 4 * 1024 * 1024
_SILENT_TICKS: Final = 5
_NONE: Final[Mapping[bytes, bytes]] = MappingProxyType({})


class ConnectionOwner(Protocol):
    """Receives the events of a connection."""

    def connected(self) -> None:
        """The server has taken us in: subscribe."""

    def take(self, messages: list[Message]) -> None:
        """Messages came, of one chunk and one after another."""

    def server_error(self, text: str) -> None:
        """The server complains; it may close the connection too."""


class NatsClientConnection(asyncio.Protocol):
    """The protocol object. `lost` completes at its end, with the error."""

    def __init__(
        self,
        owner: ConnectionOwner,
        address: ServerAddress,
        *,
        name: str,
        server_name: str,
        queue: bytes,
        keep_bytes: int,
        shared: Mapping[bytes, bytes] = _NONE,
    ) -> None:
        """`server_name` is the required name of the server, if not empty.

        `queue` is the queue group of all subscriptions: the server delivers a message to one subscription of a
        group, so that it comes once however many of our subjects match, also while subscriptions come and go. The
        name must be this connection's own, else one that is dying would be given messages too. Subjects that are
        `shared` with other nodes have a group of their own: one of the nodes gets a message.
        """
        self._owner = owner
        self._address = address
        self._name = name
        self._server_name = server_name
        self._queue = queue
        self._shared = shared
        self._parser = Parser(keep_bytes)
        self._transport: asyncio.Transport | None = None
        self._introduced = False
        self._error: DuramenError | None = None
        self._barriers: deque[Callable[[bool], None]] = deque()
        self._sids: dict[bytes, int] = {}
        self._next_sid = 1
        self._pauses: set[str] = set()
        self._silent_ticks = 0
        self._heard = False  # whether something came since the server was last asked
        self.subscribed = False  # whether the first subscriptions were made and the last were not taken back
        self.lagged = False  # whether reading was paused or fell behind since this was last cleared
        self.lost: asyncio.Future[DuramenError] = asyncio.get_running_loop().create_future()

    # -- asyncio ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio: the connection is open."""
        # uvloop's transports have the methods without the class.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)

    def data_received(self, data: bytes) -> None:
        """Asyncio: bytes came."""
        self._silent_ticks = 0
        self._heard = True
        try:
            for event in self._parser.feed(data):
                if isinstance(event, list):
                    self._owner.take(event)
                elif event is Signal.PING:
                    self.write(PONG)
                elif event is Signal.PONG:
                    if self._barriers:
                        self._barriers.popleft()(True)
                elif isinstance(event, Info):
                    self._informed(event)
                elif isinstance(event, ServerError):
                    self._owner.server_error(event.text)
        except NatsProtocolInvalid as error:
            self.abort(error)

    def connection_lost(self, error: Exception | None) -> None:
        """Asyncio: the connection is gone."""
        self._transport = None
        if self._barriers and self._heard:
            self.lagged = True  # the bytes were sent before the ping: one read did not return all of them
        reason = f"the connection to NATS at {self._address} was lost"
        if not self.lost.done():
            self.lost.set_result(self._error or ServerUnreachable(f"{reason}: {error}" if error else reason))
        while self._barriers:
            self._barriers.popleft()(False)

    def pause_writing(self) -> None:
        """Asyncio: the server does not read the replies: accept no more messages that request one."""
        self.pause("writing")

    def resume_writing(self) -> None:
        """Asyncio: it takes them again."""
        self.resume("writing")

    # -- the owner's side ---------------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """Whether the connection to the server is established."""
        return self._introduced and self._transport is not None and self._error is None

    @property
    def paused(self) -> bool:
        """Whether nothing is read for now."""
        return bool(self._pauses)

    @property
    def silent(self) -> bool:
        """Whether nothing has come for a while."""
        return self._silent_ticks > 1

    def write(self, data: bytes) -> None:
        """Send commands; nothing where the connection is gone."""
        if self._transport is not None:
            self._transport.write(data)

    def barrier(self, done: Callable[[bool], None]) -> None:
        """`done(True)` once the server has handled everything sent so far and all it sent before has been taken.

        `done(False)` where the connection ends before.
        """
        if self._transport is None or self._error is not None:
            done(False)
            return
        self._barriers.append(done)
        self._heard = False
        self.write(PING)

    def subscribe(self, subjects: list[bytes]) -> None:
        """Have the messages of these subjects."""
        self.subscribed = True
        commands = []
        for subject in subjects:
            self._sids[subject] = self._next_sid
            commands.append(encode_sub(subject, self._next_sid, self._shared.get(subject, self._queue)))
            self._next_sid += 1
        self.write(b"".join(commands))

    def unsubscribe(self, subjects: list[bytes]) -> None:
        """End the subscription; messages in transit still arrive."""
        self.write(b"".join(encode_unsub(self._sids.pop(subject)) for subject in subjects))

    def unsubscribe_all(self) -> None:
        """Have no messages any more."""
        self.unsubscribe(list(self._sids))
        self.subscribed = False

    def keep(self, keep_bytes: int) -> None:
        """Let larger messages go as they come."""
        self._parser.keep_bytes = keep_bytes

    def pause(self, cause: str) -> None:
        """Read nothing more for now."""
        if not self._pauses and self._transport is not None:
            self._transport.pause_reading()
        self._pauses.add(cause)
        self.lagged = True

    def resume(self, cause: str) -> None:
        """Read on, unless there is another cause not to."""
        if cause in self._pauses:
            self._pauses.discard(cause)
            if not self._pauses and self._transport is not None:
                self._transport.resume_reading()

    def tick(self) -> bool:
        """Called regularly; returns whether the server has responded to all pings, so that the next can be sent.

        Ends the connection if nothing has arrived for long although something should have.
        """
        if self._pauses:
            self._silent_ticks = 0
            return False
        self._silent_ticks += 1
        if self._silent_ticks > _SILENT_TICKS:
            self.abort(ServerUnreachable(f"NATS at {self._address} no longer responds"))
        elif self._barriers and self._silent_ticks == 1:
            self.lagged = True  # much comes, and the answer is behind it
        return not self._barriers

    def abort(self, error: DuramenError) -> None:
        """End the connection for that reason."""
        if self._error is None:
            self._error = error
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """End the connection once pending output is sent."""
        if self._transport is not None:
            self._transport.close()

    # -- introduction -------------------------------------------------------------------------------

    def _informed(self, info: Info) -> None:
        if self._introduced:
            return
        where = f"NATS at {self._address}"
        if self._server_name and info.server_name != self._server_name:
            raise NatsProtocolInvalid(f"{where} is another server than the one that was started")
        if info.tls_required:
            raise NatsProtocolInvalid(f"{where} demands TLS, which is not supported yet")
        if not info.headers:
            raise NatsProtocolInvalid(f"{where} (version {info.version}) has no headers; 2.2 or newer is needed")
        self._introduced = True
        connect = Connect(
            verbose=False, pedantic=False, echo=False, headers=True, no_responders=True, protocol=1,
            lang="python", version=__version__, name=self._name,
            user=self._address.user, password=self._address.password, auth_token=self._address.token,
        )  # fmt: skip
        self.write(encode_connect(connect))
        self.barrier(self._welcomed)

    def _welcomed(self, welcome: bool) -> None:
        if welcome:
            self._owner.connected()
