"""A client's connection: bytes to requests, responses to bytes in the order of the requests, and back-pressure.

Memory: a frame's buffer grows with the received bytes, never with a promised length. Reading and handling pause in
three cases: the memory of all requests is full; this client has many unanswered requests, including responses that wait
for earlier ones; or it does not read its responses. A response with records is read from the log piece by piece as the
socket accepts it.
"""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, cast

from duramen.base.errors import RequestInvalid
from duramen.base.metrics import Counter
from duramen.base.ports import Buffer, Clock
from duramen.base.principal import ANONYMOUS
from duramen.codec.kafka.header import FIXED_HEADER_BYTES, read_request_header
from duramen.codec.kafka.versions import APIS, ApiKey
from duramen.doors.kafka.connection.memory import RequestMemory
from duramen.doors.kafka.connection.record_stream import Records, Streaming, write_together
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.exchange import Exchange, HotChannel, StreamedAnswer

__all__ = ["Door", "KafkaConnection", "TakeHot"]

_log = logging.getLogger("duramen.kafka")

_DIRECT_BYTES: Final = 32 * 1024  # a frame with more to come than this is received where it will stay
_UNKNOWN_FRAME_BYTES: Final = 64 * 1024  # also the first buffer of a frame, before more of it has come
_GROWING_FAST_BYTES: Final = 1024 * 1024  # until then a buffer grows fourfold, from then on it doubles
_CONTROL_FRAME_BYTES: Final = 8 * 1024 * 1024
_UNANSWERED_REQUESTS: Final = 10_000
_JOINED_BYTES: Final = 16 * 1024  # of answers that are ready together, sent with one call
_WRITE_HIGH_BYTES: Final = 0  # a socket that does not take all of a piece gets no other beside it

_NAMES: Final = "names"
_TURN: Final = "turn"
_TURN_S: Final = 0.01
_UNCOUNTED: Final = ("memory", _TURN)  # the account counts those that wait for memory
_OF_THE_CLIENT: Final = frozenset({"slow reader"})  # pauses that are for the client to end
_NOTHING: Final = memoryview(b"")
_KEY_AND_VERSION: Final = struct.Struct(">hh")


TakeHot = Callable[[HotChannel, Context, memoryview, float], int]
"""Handles the usual Produce request that bytes begin with, whole at that time; its bytes, 0 where it is not that."""


class Door(Records, Protocol):
    """The interface of the door to its connections."""

    clock: Clock
    memory: RequestMemory
    bad_requests: Counter
    receive_buffer: memoryview
    largest_request: int
    unanswered_bytes: int
    slow_readers: int
    take_hot: TakeHot
    fed: Callable[[], None]  # a request of a connection has been handled

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Have something done after a while."""

    def opened(self, connection: "KafkaConnection") -> None:
        """A connection is open."""

    def admit(self, descriptor: int) -> bool:
        """Whether a new connection with this descriptor may stay."""

    def closed(self, connection: "KafkaConnection") -> None:
        """A connection is gone."""

    def paused(self, cause: str) -> None:
        """Reading from a connection pauses."""

    def handle(self, context: Context, exchange: Exchange) -> None:
        """Answer a request, now or later. Raises RequestInvalid if the connection cannot continue."""

    def answered(self, exchange: Exchange) -> None:
        """A request has its answer."""


class KafkaConnection(asyncio.BufferedProtocol):
    """The protocol object of one connection."""

    def __init__(self, door: Door, context: Context) -> None:
        """`context` has the addresses that clients of this listener get."""
        self._door = door
        self._context = context
        self._transport: asyncio.Transport | None = None
        self.peer_host = ""
        self.principal = ANONYMOUS
        self._progress_s = door.clock.seconds()
        self._produced_s = -1.0
        self.unproven_bytes = 0
        # Receiving: a size and header of up to 12 bytes, then a frame of `_size` bytes.
        self._head = bytearray()
        self._frame: bytearray | None = None
        self._filled = 0
        self._size = 0
        self._direct = False
        self._rest: bytes = b""  # received bytes that wait while reading pauses
        self._feeding = False
        self._handled_s = 0.0  # when the newest request was whole
        self._growing_to = 0
        self._pauses: set[str] = set()
        self._reading = True
        self._throttled_until_ms = 0
        # Answering.
        self._exchanges: deque[Exchange] = deque()
        self._unanswered_bytes = 0
        self._writable = True
        self._streaming = Streaming(door)

    # -- asyncio ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio: the connection is open."""
        # uvloop's transports have the methods without the class.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        peer = transport.get_extra_info("peername")
        self.peer_host = f"/{peer[0]}" if isinstance(peer, tuple) else ""
        self._door.opened(self)
        own = transport.get_extra_info("socket")
        if own is not None and not self._door.admit(own.fileno()):
            self.close()

    def connection_lost(self, _: Exception | None) -> None:
        """Asyncio: the connection is gone."""
        self._transport = None
        for exchange in self._exchanges:
            self._door.memory.release(exchange.size)
            if exchange.abandoned is not None:
                exchange.abandoned()
        self._exchanges.clear()
        self._rest = b""
        if self._frame is not None:
            self._door.memory.release(len(self._frame))
            self._frame = None
        self._streaming.drop()
        if not self._writable:
            self._door.slow_readers -= 1
        self._door.closed(self)

    def get_buffer(self, _: int) -> memoryview:
        """Asyncio: the buffer for the next bytes: a large frame's own, otherwise the one that all connections share."""
        if self._frame is not None and len(self._frame) - self._filled >= _DIRECT_BYTES:
            self._direct = True
            return memoryview(self._frame)[self._filled :]
        self._direct = False
        return self._door.receive_buffer

    def buffer_updated(self, count: int) -> None:
        """Asyncio: a number of bytes arrived."""
        door = self._door
        self._progress_s = now_s = door.clock.seconds()
        try:
            if self._direct:
                self._filled += count
                self._frame_progress(_NOTHING)
            else:
                data = door.receive_buffer[:count]
                if not (self._pauses or self._head or self._frame is not None):
                    # The usual case: one small request that is whole.
                    taken = door.take_hot(self, self._context, data, now_s)
                    if taken == count:
                        return
                    data = data[taken:]
                self._feed(data)
        except RequestInvalid as error:
            self._refuse(str(error))
        door.fed()

    def eof_received(self) -> bool:
        """Asyncio: the client sends no more. Answers that are still to come go nowhere: close."""
        return False

    def pause_writing(self) -> None:
        """Asyncio: the socket takes no more for now."""
        self._writable = False
        self._door.slow_readers += 1
        self._pause("slow reader")

    def resume_writing(self) -> None:
        """Asyncio: the socket takes more again."""
        self._writable = True
        self._door.slow_readers -= 1
        self._resume("slow reader")
        self.send_ready()

    # -- receiving ----------------------------------------------------------------------------------

    def _feed(self, data: memoryview) -> None:
        """Split the received bytes into requests and handle them; keep the rest when reading pauses.

        Many requests that arrived together are handled in several turns, so that other connections run in between.
        """
        transport = self._transport
        if transport is None:
            return
        self._feeding = True
        self._handled_s = began_s = self._door.clock.seconds()
        try:
            while len(data) and not self._pauses and not transport.is_closing():
                begun = self._frame is not None or self._head
                taken = 0 if begun else self._door.take_hot(self, self._context, data, self._handled_s)
                data = data[taken:] if taken else self._feed_some(data)
                if len(data):
                    self._handled_s = self._door.clock.seconds()
                    if self._handled_s - began_s > _TURN_S:
                        self._pause(_TURN)
                        asyncio.get_running_loop().call_soon(self._resume, _TURN)
        finally:
            self._feeding = False
        self._rest = bytes(data)

    def _feed_some(self, data: memoryview) -> memoryview:
        """Process the next request or a part of it; returns the rest."""
        if self._frame is not None:
            room = min(len(data), len(self._frame) - self._filled)
            self._frame[self._filled : self._filled + room] = data[:room]
            self._filled += room
            return self._frame_progress(data[room:])
        if not self._head and len(data) >= 4:
            size = self._check_size(data)
            if len(data) >= 4 + size and self._door.memory.try_take(size):
                # The usual case: whole small requests, each copied once so that it can stay.
                self._handle(bytearray(data[4 : 4 + size]))
                return data[4 + size :]
        wanted = 4 + FIXED_HEADER_BYTES - len(self._head)
        self._head += data[:wanted]
        data = data[wanted:]
        if len(self._head) >= 4:
            self._size = self._check_size(memoryview(self._head))
        if len(self._head) == 4 + FIXED_HEADER_BYTES:
            data = self._grow(min(self._size, max(_UNKNOWN_FRAME_BYTES, len(data) + FIXED_HEADER_BYTES)), data)
        return data

    def _feed_rest(self) -> None:
        """Continue with bytes that arrived before reading paused."""
        rest, self._rest = self._rest, b""
        try:
            self._frame_progress(_NOTHING)
            self._feed(memoryview(rest))
        except RequestInvalid as error:
            self._refuse(str(error))

    def _check_size(self, data: memoryview) -> int:
        """The size in a frame's header. Raises RequestInvalid if no request can have it."""
        size = int.from_bytes(data[:4], "big", signed=True)
        if not FIXED_HEADER_BYTES <= size <= self._door.largest_request:
            raise RequestInvalid(f"a request says that it has {size} bytes")
        if size > _UNKNOWN_FRAME_BYTES and len(data) >= 8:
            api_key, version = _KEY_AND_VERSION.unpack_from(data, 4)
            api = APIS.get(api_key)
            if api is None or not api.low <= version <= api.high:
                raise RequestInvalid(f"a request of API {api_key}, version {version}, says that it has {size} bytes")
            if api_key != ApiKey.PRODUCE and size > _CONTROL_FRAME_BYTES:
                raise RequestInvalid(f"a request of the API {api_key} says that it has {size} bytes")
        return size

    def _frame_progress(self, rest: memoryview) -> memoryview:
        """Handle the frame if it is complete; grow its buffer if that is full. Returns the rest."""
        frame = self._frame
        if frame is None or self._filled < len(frame):
            return rest
        if len(frame) < self._size:
            times = 4 if len(frame) < _GROWING_FAST_BYTES else 2
            return self._grow(min(self._size, times * len(frame)), rest)
        self._frame = None
        self._door.memory.completed(self)
        self._handled_s = self._door.clock.seconds()
        self._handle(frame)
        return rest

    def _grow(self, size: int, rest: memoryview) -> memoryview:
        """Give the frame a buffer of `size` bytes, now or when there is memory. Returns the rest."""
        self._growing_to = size
        if self._door.memory.acquire(self, self._growth()):
            self._grown()
        else:
            self._pause("memory")
        return rest

    def _growth(self) -> int:
        return self._growing_to - (len(self._frame) if self._frame is not None else 0)

    def _grown(self) -> None:
        buffer = bytearray(self._growing_to)
        if self._frame is None:
            buffer[:FIXED_HEADER_BYTES] = self._head[4:]
            self._head = bytearray()
            self._filled = FIXED_HEADER_BYTES
        else:
            buffer[: self._filled] = self._frame
        self._frame = buffer

    def memory_granted(self) -> None:
        """There is room for the frame's next part; it is accounted for."""
        if self._transport is None:
            self._door.memory.release(self._growth())
            return
        self._progress_s = self._door.clock.seconds()
        self._grown()
        self._resume("memory")

    def half_request_bytes(self) -> int:
        """The memory of its incomplete request."""
        return len(self._frame) if self._frame is not None else 0

    def whole_request_bytes(self) -> int:
        """The memory of its incomplete request once it is complete."""
        return self._size

    def keeps_us_waiting(self) -> bool:
        """Whether the client causes the delay of an incomplete request: the connection would read it."""
        return self._frame is not None and self._pauses <= _OF_THE_CLIENT

    def reclaim(self) -> None:
        """Close: others need the memory that half a request sits on."""
        self._refuse("the connection stalled in the middle of a request while others waited for memory")

    def _refuse(self, why: str) -> None:
        """Close the connection because of the client's error; acknowledged records are unaffected."""
        _log.warning("connection from %s closed: %s", self.peer_host or "?", why)
        self._door.bad_requests.value += 1
        self.abort()

    def abort(self) -> None:
        """Abort the connection; unsent responses are lost."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close once the pending responses are sent."""
        if self._transport is not None:
            self._transport.close()

    @property
    def last_progress_ms(self) -> int:
        """When something came last, or reading went on; monotonic."""
        return round(self._progress_s * 1000)

    @property
    def last_produced_ms(self) -> int:
        """When a batch was last acknowledged to it; -1 before the first."""
        return round(self._produced_s * 1000) if self._produced_s >= 0 else -1

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._exchanges and self._frame is None and not self._head and not self._rest

    # -- handling -----------------------------------------------------------------------------------

    def _handle(self, frame: bytearray) -> None:
        size = len(frame)
        try:
            header = read_request_header(frame)
        except RequestInvalid:
            self._door.memory.release(size)
            raise
        exchange = Exchange(self, header, memoryview(frame), size, self._handled_s, self.principal)
        self.came(exchange)
        self._door.handle(self._context, exchange)

    def came(self, exchange: Exchange) -> None:
        """A request is complete: its response follows those of earlier requests."""
        self._exchanges.append(exchange)
        self._unanswered_bytes += exchange.size
        if self._unanswered_bytes > self._door.unanswered_bytes or len(self._exchanges) > _UNANSWERED_REQUESTS:
            self._pause("unanswered")

    def weighed(self, size: int) -> None:
        """An unanswered request holds `size` bytes more than its own."""
        if self._transport is None:
            return
        self._door.memory.charge(size)
        self._unanswered_bytes += size
        if self._unanswered_bytes > self._door.unanswered_bytes:
            self._pause("unanswered")

    def hold(self) -> None:
        """The newest request waits for its names; later ones wait too, so that their order is kept."""
        self._pause(_NAMES)

    def go_on(self, action: Callable[[], None]) -> None:
        """The newest request has its names: handle it and the later ones."""
        if self._transport is None:
            return
        try:
            action()
        except RequestInvalid as error:
            self._refuse(str(error))
        self._resume(_NAMES)
        self._door.fed()

    def _pause(self, cause: str) -> None:
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()
        if cause not in self._pauses:
            self._pauses.add(cause)
            if cause not in _UNCOUNTED:
                self._door.paused(cause)

    def _resume(self, cause: str) -> None:
        if cause not in self._pauses:
            return
        self._pauses.discard(cause)
        if not self._pauses and not self._feeding:
            self._feed_rest()
        if not self._pauses and not self._reading and self._transport is not None:
            self._reading = True
            self._progress_s = self._door.clock.seconds()  # bytes that arrive later were not read
            self._transport.resume_reading()

    def _throttle(self, delay_ms: int) -> None:
        """Stop reading for the throttle time, which the client may not respect by itself (KIP-219)."""
        self._throttled_until_ms = max(self._throttled_until_ms, self._door.clock.monotonic_ms() + delay_ms)
        if "throttled" not in self._pauses:
            self._pause("throttled")
            self._door.later(delay_ms, self._go_on)

    def _go_on(self) -> None:
        left_ms = self._throttled_until_ms - self._door.clock.monotonic_ms()
        if left_ms > 0 and self._transport is not None:
            self._door.later(left_ms, self._go_on)
        else:
            self._resume("throttled")

    # -- answering ----------------------------------------------------------------------------------

    def answer_ready(self, exchange: Exchange) -> None:
        """An exchange has its answer; it goes out when those before it have gone."""
        self._door.answered(exchange)
        if exchange.throttle_ms:
            self._throttle(exchange.throttle_ms)
        if self._transport is None:
            return
        is_next = self._exchanges[0] is exchange
        if isinstance(exchange.answer, bytes) and not (is_next and self._writable):
            exchange.weigh(len(exchange.answer))
        if is_next:
            self.send_ready()

    def _takes_more(self) -> bool:
        return self._transport is not None and self._writable

    def send_ready(self) -> None:
        """Send the answers that are next; those that are ready together leave with one call."""
        exchanges, streaming, transport = self._exchanges, self._streaming, self._transport
        if len(exchanges) == 1 and transport is not None and self._writable and not self._pauses:
            # The usual case: one small answer.
            exchange = exchanges[0]
            answer = exchange.answer if exchange.answered else None
            if isinstance(answer, bytes) and streaming.answer is None and not streaming.waits:
                exchanges.popleft()
                transport.write(answer)
                self._release(exchange.size, produced=exchange.api_key == ApiKey.PRODUCE)
                return
        while self._transport is not None and self._writable and not streaming.waits:
            if streaming.answer is not None and not streaming.send(self._transport, self._takes_more, self.send_ready):
                return
            if not exchanges or not exchanges[0].answered:
                break
            self._send_next(self._transport)
        if (
            self._pauses
            and self._unanswered_bytes < self._door.unanswered_bytes // 2
            and len(exchanges) < _UNANSWERED_REQUESTS // 2
        ):
            self._resume("unanswered")

    def _send_next(self, transport: asyncio.Transport) -> None:
        """Send the next response, and in the same call small later ones that are ready."""
        exchanges = self._exchanges
        answers: list[Buffer] = []
        answers_bytes = released_bytes = 0
        produced = False
        while answers_bytes < _JOINED_BYTES and exchanges and exchanges[0].answered:
            exchange = exchanges.popleft()
            released_bytes += exchange.size
            if exchange.api_key == ApiKey.PRODUCE:
                produced = True
            if isinstance(exchange.answer, StreamedAnswer):
                self._streaming.begin(exchange.answer)
                break
            if exchange.answer is not None:
                answers.append(exchange.answer)
                answers_bytes += len(exchange.answer)
        if len(answers) == 1:
            transport.write(answers[0])
        elif answers:
            write_together(transport, answers)
        self._release(released_bytes, produced=produced)

    def _release(self, size: int, *, produced: bool) -> None:
        """Answers have gone, of batches among them: give back the memory of their requests."""
        if produced:
            self._produced_s = self._door.clock.seconds()
        self._unanswered_bytes -= size
        # Last: a waiting connection, this one too, may continue at once with this memory.
        self._door.memory.release(size)
