"""The publisher: plain nats-py with many messages in flight; unacknowledged ones are published again.

Every message has its number in its reply subject, under one inbox with one subscription, so that an acknowledgement
costs one callback and no coroutine.
"""

import asyncio
import contextlib
import time
from array import array
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec
import nats
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from duramen.base.errors import DemoFailed
from duramen.demo.flights import MESSAGE_ID_PREFIX, DemoFlight

__all__ = ["Publisher"]

_ID: Final = "Nats-Msg-Id"
_NO_RESPONDERS: Final = "503"
_UNAVAILABLE: Final = 503
_TURN: Final = 100  # messages published before acknowledgements are looked at
_REPEAT_S: Final = 0.1
_PATIENCE_S: Final = 60.0
_LOST: Final = (ConnectionError, RuntimeError)
"""What asyncio and uvloop say where something is written to a connection that is lost."""

_PENDING_BYTES: Final = 16 * 1024 * 1024


class _Error(msgspec.Struct):
    code: int
    description: str


class _Ack(msgspec.Struct):
    """JetStream's acknowledgement, with what Duramen adds: the partition, and the offset in it."""

    partition: int = -1
    offset: int = -1
    duplicate: bool = False
    error: _Error | None = None


class Publisher:
    """Publishes flights until each is acknowledged, and keeps where each was stored and how long that took."""

    def __init__(self, flights: Sequence[DemoFlight], window: int) -> None:
        """`window` is how many may wait for their acknowledgement at once."""
        self._flights = flights
        self._window = window
        count = len(flights)
        self.partitions = array("q", [-1]) * count
        self.offsets = array("q", [-1]) * count
        self.latencies_s = array("d", [0.0]) * count
        self._first_sent_s = array("d", [0.0]) * count
        self.acknowledged = 0
        self.repeated: set[int] = set()  # published more than once
        self.recognised: set[int] = set()  # of those: stored the first time, and not again
        self.halfway = asyncio.Event()
        self.answered_after_outage_s = 0.0
        self._next = 0
        self._end = 3 * count // 4
        self._in_flight: set[int] = set()
        self._again: deque[int] = deque()
        self._connected = asyncio.Event()
        self._changed = asyncio.Event()
        self._after_outage = False
        self._failure: DemoFailed | None = None
        self._decoder = msgspec.json.Decoder(_Ack)

    async def run(self, address: str) -> None:
        """Publish everything to the NATS server at HOST:PORT. Raises DemoFailed."""
        try:
            async with self._connection(address) as client:
                await self._publish_all(client)
        except (nats.errors.Error, OSError) as error:
            raise DemoFailed(f"publishing failed: {str(error) or type(error).__name__}") from None

    @contextlib.asynccontextmanager
    async def _connection(self, address: str) -> AsyncIterator[Client]:
        client = await nats.connect(
            f"nats://{address}", allow_reconnect=True, max_reconnect_attempts=-1, reconnect_time_wait=_REPEAT_S,
            pending_size=_PENDING_BYTES, disconnected_cb=self._on_disconnect, reconnected_cb=self._on_reconnect,
            error_cb=_ignore,
        )  # fmt: skip
        self._connected.set()
        try:
            yield client
        finally:
            with contextlib.suppress(*_LOST):
                await client.close()

    def publish_the_rest(self) -> None:
        """The last quarter is held back until this is called, so that whatever happens half-way has some to come."""
        self._end = len(self._flights)
        self._changed.set()

    async def _publish_all(self, client: Client) -> None:
        inbox = client.new_inbox()
        await client.subscribe(f"{inbox}.*", cb=self._answer, pending_msgs_limit=0, pending_bytes_limit=0)
        heard_s, acknowledged = time.perf_counter(), 0
        while self.acknowledged < len(self._flights):
            if self._failure is not None:
                raise self._failure
            if self.acknowledged != acknowledged:
                heard_s, acknowledged = time.perf_counter(), self.acknowledged
            elif time.perf_counter() - heard_s > _PATIENCE_S:
                raise DemoFailed(f"no acknowledgement came in {_PATIENCE_S:.0f} s")
            await self._connected.wait()
            self._changed.clear()
            if await self._publish_some(client, inbox):
                await asyncio.sleep(0)
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), 1.0)

    async def _publish_some(self, client: Client, inbox: str) -> bool:
        """Publish what may be published now, at most a turn; returns whether there was any."""
        numbers: list[int] = []
        while self._again and len(numbers) < _TURN:
            number = self._again.popleft()
            if number in self._in_flight:
                self.repeated.add(number)
                numbers.append(number)
        room = min(self._window - len(self._in_flight), _TURN - len(numbers), self._end - self._next)
        if room > 0:
            new = range(self._next, self._next + room)
            self._next += room
            self._in_flight.update(new)
            now_s = time.perf_counter()
            for number in new:
                self._first_sent_s[number] = now_s
            numbers.extend(new)
        try:
            for number in numbers:
                subject, body = self._flights[number]
                headers = {_ID: f"{MESSAGE_ID_PREFIX}{number}"}
                await client.publish(subject, body, reply=f"{inbox}.{number}", headers=headers)
        except _LOST:
            # nats-py has not noticed yet. All that is in flight is published again once it has.
            return False
        return bool(numbers)

    async def _answer(self, message: Msg) -> None:
        """NATS: something came to the inbox."""
        number = int(message.subject.rpartition(".")[2])
        if message.headers and message.headers.get("Status") == _NO_RESPONDERS:
            self._repeat_soon(number)
            return
        ack = self._decoder.decode(message.data)
        if ack.error is not None:
            if ack.error.code == _UNAVAILABLE:
                self._repeat_soon(number)
            else:
                self._fail(f"flight {number} was refused: {ack.error.description}")
        elif number in self._in_flight:
            self._acknowledge(number, ack)
        elif (ack.partition, ack.offset) != (self.partitions[number], self.offsets[number]):
            self._fail(f"flight {number} was acknowledged at two places")

    def _acknowledge(self, number: int, ack: _Ack) -> None:
        now_s = time.perf_counter()
        self._in_flight.discard(number)
        self.partitions[number] = ack.partition
        self.offsets[number] = ack.offset
        self.latencies_s[number] = now_s - self._first_sent_s[number]
        self.acknowledged += 1
        if ack.duplicate:
            self.recognised.add(number)
        if self._after_outage:
            self._after_outage = False
            self.answered_after_outage_s = now_s
        if 2 * self.acknowledged >= len(self._flights):
            self.halfway.set()
        self._changed.set()

    def _repeat_soon(self, number: int) -> None:
        asyncio.get_running_loop().call_later(_REPEAT_S, self._repeat, [number])

    def _repeat(self, numbers: Sequence[int]) -> None:
        self._again.extend(numbers)
        self._changed.set()

    def _fail(self, why: str) -> None:
        self._failure = DemoFailed(why)
        self._changed.set()

    async def _on_disconnect(self) -> None:
        self._connected.clear()

    async def _on_reconnect(self) -> None:
        # Nobody knows what became of the messages under way: all of them are published again, in order.
        self._again.clear()
        self._repeat(sorted(self._in_flight))
        self._after_outage = True
        self._connected.set()


async def _ignore(_: Exception) -> None:
    """nats-py would log every failed attempt to reconnect."""
