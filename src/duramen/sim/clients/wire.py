"""A client's connection to the Kafka door without a socket: the door's own protocol object, driven by hand.

Bytes reach the door in pieces of any size. Its output reaches the client a moment later, or slowly: then the door is
told that the socket is full, and some time later that it is writable. No event loop runs.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from duramen.base.ports import Buffer
from duramen.codec.kafka.header import encode_request, response_body_start
from duramen.codec.kafka.versions import ApiKey
from duramen.doors.kafka.connection.connection import Door, KafkaConnection
from duramen.doors.kafka.request.context import Context
from duramen.sim.machine.scheduler import SeededWorker
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["Replied", "WireConnection"]

_CLIENT: Final = "simulated"
_SLOWEST_US: Final = 400_000

Replied = Callable[[memoryview | None, int], None]
"""Called with a response's frame and where its body begins; with None where the door broke the connection off."""


class _Socket(asyncio.Transport):
    """The socket of the door's protocol object."""

    def __init__(self, connection: "WireConnection") -> None:
        super().__init__()
        self._connection = connection

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 1) if name == "peername" else default

    def is_closing(self) -> bool:
        return not self._connection.open

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def write(self, data: Buffer) -> None:
        self._connection.written(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self._connection.written(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self._connection.reading = False

    def resume_reading(self) -> None:
        self._connection.reading = True
        self._connection.feed_later()

    def abort(self) -> None:
        self._connection.close()

    def close(self) -> None:
        self._connection.close()


class WireConnection:
    """One connection. `ask` sends a request; answers come in the order of the requests."""

    def __init__(
        self, door: Door, context: Context, worker: SeededWorker, chance: random.Random, *, slow: bool = False
    ) -> None:
        """`slow` where the client may not take its answers at once."""
        self.reading = True  # whether the door wants more
        self._worker = worker
        self._chance = chance
        self._slow = slow
        self._unsent = bytearray()
        self._received = bytearray()
        self._waiting: deque[tuple[int, ApiKey, int, Replied]] = deque()
        self._correlation_id = 0
        self.open = True
        self._protocol = KafkaConnection(door, context)
        self._protocol.connection_made(_Socket(self))

    # -- to the door --------------------------------------------------------------------------------

    def ask(self, api: ApiKey, version: int, body: Sequence[Buffer], done: Replied) -> None:
        """Send a request."""
        self._correlation_id += 1
        self._waiting.append((self._correlation_id, api, version, done))
        self._unsent += encode_request(api, version, self._correlation_id, _CLIENT, b"".join(body))
        self._feed()

    def feed_later(self) -> None:
        """Go on sending: the door reads again."""
        self._worker.soon(self._feed)

    def _feed(self) -> None:
        most = self._chance.choice((1 << 20, 1 << 20, 700, 9))
        while self._unsent and self.reading and self.open:
            buffer = self._protocol.get_buffer(-1)
            count = min(len(buffer), len(self._unsent), most)
            buffer[:count] = self._unsent[:count]
            del self._unsent[:count]
            self._protocol.buffer_updated(count)

    # -- from the door ------------------------------------------------------------------------------

    def written(self, data: bytes) -> None:
        """The door has written this."""
        self._received += data
        self._worker.soon(self._take)
        if self._slow and self._chance.random() < 0.5:
            self._slow = False
            self._protocol.pause_writing()
            self._worker.after(self._chance.randint(100, _SLOWEST_US), self._resume)

    def _resume(self) -> None:
        if self.open:
            self._protocol.resume_writing()

    def _take(self) -> None:
        while len(self._received) >= 4:
            size = int.from_bytes(self._received[:4], "big")
            if len(self._received) < 4 + size:
                return
            frame = memoryview(bytes(self._received[4 : 4 + size]))
            del self._received[: 4 + size]
            if not self._waiting or self._waiting[0][0] != int.from_bytes(frame[:4], "big"):
                raise BrokenPromise(f"the door answers {int.from_bytes(frame[:4], 'big')}, which is not its turn")
            _, api, version, done = self._waiting.popleft()
            done(frame, response_body_start(api, version, frame))

    def close(self) -> None:
        """Either side closes: pending requests get no response."""
        if self.open:
            self.open = False
            self._worker.soon(self._lost)

    def _lost(self) -> None:
        self._protocol.connection_lost(None)
        self._take()
        while self._waiting:
            self._waiting.popleft()[3](None, 0)
