"""The closed loop: a fixed number of connections and requests in flight, as fast as they are acknowledged."""

import selectors
import time
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from duramen.base.errors import RequestTimedOut
from duramen.bench.contenders import Contender
from duramen.bench.load.connections import CHUNK_BYTES, Line, lost, open_line

__all__ = ["ClosedLoopResult", "fly"]

_SILENCE_S: Final = 30.0
_JOINED_BYTES: Final = 256 * 1024
_NS: Final = 1_000_000_000


class ClosedLoopResult(NamedTuple):
    """What came of it: acknowledged requests, in how many seconds, and how long each took, in µs."""

    requests: int
    seconds: float
    took_us: list[int]

    @property
    def rate_hz(self) -> float:
        """Acknowledged requests a second."""
        return self.requests / self.seconds


class _Loop:
    """Every line of one contender."""

    def __init__(self, contender: Contender, lines: Sequence[Line], in_flight: int) -> None:
        self._contender = contender
        self._lines = {line.socket.fileno(): line for line in lines}
        self._in_flight = in_flight
        self._sent: dict[int, deque[int]] = {number: deque() for number in self._lines}
        self._out: dict[int, memoryview] = {}
        self._selector = selectors.DefaultSelector()
        for line in lines:
            self._selector.register(line.socket, selectors.EVENT_READ)
        self.acknowledged = 0
        self.took_us: list[int] = []
        self.left: int | None = None

    def close(self) -> None:
        self._selector.close()

    def begin(self, messages: int | None) -> None:
        """Fill every line; `messages` bounds what is sent in all."""
        self.left = messages
        now_ns = time.monotonic_ns()
        for number in self._lines:
            self._send(number, self._in_flight, now_ns)

    @property
    def idle(self) -> bool:
        """Whether everything that was sent is acknowledged."""
        return not any(self._sent.values())

    def step(self, *, again: bool) -> None:
        """Take what came, and send as much again if asked. Raises RequestTimedOut, ServerUnreachable …"""
        ready = self._selector.select(_SILENCE_S)
        if not ready:
            raise RequestTimedOut(f"{self._contender.name} has acknowledged nothing for {_SILENCE_S:g} s")
        for key, events in ready:
            if events & selectors.EVENT_WRITE:
                self._push(key.fd)
            if events & selectors.EVENT_READ:
                self._receive(key.fd, again=again)

    def _receive(self, number: int, *, again: bool) -> None:
        line = self._lines[number]
        try:
            data = line.socket.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise lost(self._contender, error) from None
        if not data:
            raise lost(self._contender)
        count = line.channel.take(data)
        if line.channel.reply:
            self._queue(number, line.channel.reply)
            line.channel.reply = b""
        now_ns = time.monotonic_ns()
        sent = self._sent[number]
        for _ in range(count):
            self.took_us.append((now_ns - sent.popleft()) // 1000)
        self.acknowledged += count
        if count and again:
            self._send(number, count, now_ns)

    def _send(self, number: int, count: int, now_ns: int) -> None:
        if self.left is not None:
            count = min(count, self.left)
            self.left -= count
        if not count:
            return
        line = self._lines[number]
        self._sent[number].extend([now_ns] * count)
        frame = line.channel.frames(count)
        if number not in self._out and count == 1:
            try:
                sent = line.socket.send(frame)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                raise lost(self._contender, error) from None
            if sent < len(frame):
                self._queue(number, frame[sent:])
            return
        self._queue(number, frame)

    def _queue(self, number: int, data: bytes) -> None:
        waiting = self._out.get(number)
        self._out[number] = memoryview(data if waiting is None else bytes(waiting) + data)
        if waiting is None:
            self._selector.modify(number, selectors.EVENT_READ | selectors.EVENT_WRITE)
            self._push(number)

    def _push(self, number: int) -> None:
        waiting = self._out.get(number)
        if waiting is None:
            return
        try:
            waiting = waiting[self._lines[number].socket.send(waiting[:_JOINED_BYTES]) :]
        except BlockingIOError:
            return
        except OSError as error:
            raise lost(self._contender, error) from None
        if waiting:
            self._out[number] = waiting
        else:
            del self._out[number]
            self._selector.modify(number, selectors.EVENT_READ)


def fly(
    contender: Contender,
    value_bytes: int,
    *,
    connections: int = 1,
    in_flight: int = 1,
    warm_s: float = 0.5,
    duration_s: float | None = None,
    messages: int | None = None,
    partitions: Sequence[Sequence[int]] = ((0,),),
    idempotent: bool = False,
) -> ClosedLoopResult:
    """Keep `in_flight` requests of single records on each connection, for a time or for so many messages.

    Connection i writes to the partitions at i, round and round; with `idempotent` as an idempotent producer. What comes
    in the first `warm_s` is not counted.
    However short the time is, something is acknowledged in it.
    Raises RequestTimedOut, ServerUnreachable or RequestInvalid.
    """
    lines: list[Line] = []
    try:
        lines.extend(
            open_line(contender, value_bytes, partitions[i % len(partitions)], idempotent=idempotent)
            for i in range(connections)
        )
        loop = _Loop(contender, lines, in_flight)
        try:
            return _fly(loop, warm_s, duration_s, messages)
        finally:
            loop.close()
    finally:
        for line in lines:
            line.socket.close()


def _fly(loop: _Loop, warm_s: float, duration_s: float | None, messages: int | None) -> ClosedLoopResult:
    if warm_s:
        loop.begin(None)
        warm_until_ns = time.monotonic_ns() + int(warm_s * _NS)
        while time.monotonic_ns() < warm_until_ns:
            loop.step(again=True)
        while not loop.idle:
            loop.step(again=False)
    before, loop.took_us = loop.acknowledged, []
    began_ns = time.monotonic_ns()
    loop.begin(messages)
    if messages is not None:
        while not loop.idle:
            loop.step(again=True)
    else:
        end_ns = began_ns + int((duration_s or 1.0) * _NS)
        while time.monotonic_ns() < end_ns or loop.acknowledged == before:
            loop.step(again=True)
    return ClosedLoopResult(loop.acknowledged - before, (time.monotonic_ns() - began_ns) / _NS, loop.took_us)
