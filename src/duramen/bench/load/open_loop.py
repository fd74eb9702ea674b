"""The open loop: messages are sent when they are due, regardless of earlier ones; latency counts from then.

So a stall of the broker affects every message that was due during it, not only one.
"""

import select
import time
from typing import Final

from duramen.base.errors import RequestTimedOut
from duramen.bench.contenders import Contender
from duramen.bench.load.connections import CHUNK_BYTES, Line, lost, open_line
from duramen.bench.load.schedule import Schedule

__all__ = ["pace", "pace_line", "wait_until_ns"]

_SPIN_NS: Final = 150_000
"""Timers of the system are late by about this much: the rest is spent looking."""

_LEAD_NS: Final = 20_000_000
_DRAIN_NS: Final = 60_000_000_000


def wait_until_ns(due_ns: int) -> None:
    """Wait for a moment of the monotonic clock, on time to some µs."""
    left_ns = due_ns - time.monotonic_ns()
    if left_ns > _SPIN_NS:
        time.sleep((left_ns - _SPIN_NS) / 1e9)
    while time.monotonic_ns() < due_ns:
        pass


class _Run:
    """One schedule on one line: what was sent, what is still to go out, what was acknowledged and when."""

    def __init__(self, contender: Contender, line: Line, schedule: Schedule) -> None:
        self._contender = contender
        self._line = line
        self._schedule = schedule
        self._out = memoryview(b"")
        self._sent = 0
        self._start_ns = time.monotonic_ns() + _LEAD_NS
        self.took_us: list[int] = []

    def run(self) -> None:
        """Until everything is acknowledged. Raises RequestTimedOut, ServerUnreachable or RequestInvalid."""
        count = self._schedule.messages
        deadline_ns = self._start_ns + self._schedule.due_ns(count) + _DRAIN_NS
        while len(self.took_us) < count:
            due_ns = self._start_ns + self._schedule.due_ns(self._sent) if self._sent < count else deadline_ns
            now_ns = time.monotonic_ns()
            if now_ns > deadline_ns:
                missing = count - len(self.took_us)
                raise RequestTimedOut(f"{self._contender.name} has not acknowledged {missing} of {count} messages")
            if not self._out and self._sent < count and due_ns <= now_ns:
                self._out = memoryview(self._line.channel.frames(1))
                self._sent += 1
                due_ns = now_ns
            if self._out:
                self._send()
            self._wait(due_ns)
            self._receive()

    def _send(self) -> None:
        try:
            self._out = self._out[self._line.socket.send(self._out) :]
        except BlockingIOError:
            pass
        except OSError as error:
            raise lost(self._contender, error) from None

    def _wait(self, due_ns: int) -> None:
        """Until something can be read or written, or a little before the next message is due."""
        left_s = max(0, due_ns - time.monotonic_ns() - _SPIN_NS) / 1e9
        connection = self._line.socket
        select.select([connection], [connection] if self._out else [], [], left_s)

    def _receive(self) -> None:
        try:
            data = self._line.socket.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise lost(self._contender, error) from None
        now_ns = time.monotonic_ns()
        if not data:
            raise lost(self._contender)
        channel = self._line.channel
        acknowledged = channel.take(data)
        for index in range(len(self.took_us), len(self.took_us) + acknowledged):
            self.took_us.append((now_ns - self._start_ns - self._schedule.due_ns(index)) // 1000)
        if channel.reply:
            self._out = memoryview(bytes(self._out) + channel.reply)
            channel.reply = b""


def pace(contender: Contender, value_bytes: int, warm: Schedule, schedule: Schedule) -> list[int]:
    """Latencies in µs of single messages at a fixed rate on one connection, in the order in which they were due.

    What `warm` says goes before and is not counted. Raises RequestTimedOut, ServerUnreachable or RequestInvalid.
    """
    return pace_line(contender, open_line(contender, value_bytes), warm, schedule)


def pace_line(contender: Contender, line: Line, warm: Schedule, schedule: Schedule) -> list[int]:
    """As `pace`, on a connection that is open; it is closed at the end."""
    try:
        _Run(contender, line, warm).run()
        counted = _Run(contender, line, schedule)
        counted.run()
    finally:
        line.socket.close()
    return counted.took_us
