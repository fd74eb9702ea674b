"""The memory budget of unanswered requests, all connections together.

A connection that needs more than is free stops reading and queues. Requests that may never be completed are the danger.
So connections with recently acknowledged batches go first and may use all memory. Then come those that ever had one
acknowledged, then all others; unfinished requests of these two hold at most half, and every eighth place in the queue
is theirs. If connections queue while others hold half a request without sending, the longest silent ones are closed. If
the queued connections hold so much that none could continue, the latest ones are closed.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from duramen.base.deadlines import Deadlines
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock

__all__ = ["Holder", "RequestMemory"]

_STALLED_MS: Final = 1000
_SERVED_MS: Final = 3000
_TURNS: Final = 8
_TIE_SHARE: Final = 2  # of the memory of waiting connections, the most that is taken at a time
_SMALL_BYTES: Final = 16 * 1024
_SMALL_SHARE: Final = 8  # small requests may hold an eighth more


class Holder(Protocol):
    """A connection. `last_produced_ms` is the time of its last acknowledged batch, negative before the first.

    `unproven_bytes` belongs to the budget: the part of the half for unproven connections that its incomplete request
    uses.
    """

    unproven_bytes: int

    @property
    def last_progress_ms(self) -> int:
        """When something came last, or reading went on."""

    @property
    def last_produced_ms(self) -> int:
        """When a batch was last acknowledged to it; negative before the first."""

    def memory_granted(self) -> None:
        """There is memory now: continue reading."""

    def half_request_bytes(self) -> int:
        """The memory of its incomplete request; 0 without one."""

    def whole_request_bytes(self) -> int:
        """The memory of the request for which it waits, once it is complete."""

    def keeps_us_waiting(self) -> bool:
        """Whether the client causes the delay of an incomplete request."""

    def reclaim(self) -> None:
        """Close: others need the memory."""


_Line = deque[tuple[Holder, int]]


class RequestMemory:
    """An account in bytes. No single part of a request is larger than the whole account."""

    def __init__(self, limit_bytes: int, clock: Clock, deadlines: Deadlines, metrics: Metrics) -> None:
        self._limit = limit_bytes
        self._clock = clock
        self._deadlines = deadlines
        self._used = 0
        self._unproven = 0
        self._proven_line: _Line = deque()
        self._known_line: _Line = deque()
        self._new_line: _Line = deque()
        self._checking = False
        self._serving = False
        self._served = 0
        self._gauge = metrics.counter("duramen_kafka_request_bytes")
        self._paused = metrics.counter("duramen_kafka_paused_reads_total", "memory")
        self._reclaimed = metrics.counter("duramen_kafka_reclaimed_total")
        self.holders: set[Holder] = set()

    def acquire(self, holder: Holder, size: int) -> bool:
        """Take `size` bytes; if they are not free, `holder` waits and is notified when it has them."""
        proven = self._proven(holder)
        line = self._proven_line if proven else self._other_line(holder)
        if not line and self._fits(holder, size, proven=proven):
            self._give(holder, size, proven=proven)
            return True
        line.append((holder, size))
        self._paused.value += 1
        self._check_later()
        return False

    def try_take(self, size: int) -> bool:
        """Count a complete, received request, unless there is no memory for it.

        Small ones, such as heartbeats, go before waiting connections.
        """
        if size <= _SMALL_BYTES:
            has_room = self._used + size <= self._limit + self._limit // _SMALL_SHARE
        else:
            has_room = self._used + size <= self._limit and not self._proven_line
        if has_room:
            self._used += size
            self._gauge.value = self._used
        return has_room

    def charge(self, size: int) -> None:
        """Count memory that is already used, even beyond the limit: later requests wait for it."""
        self._used += size
        self._gauge.value = self._used

    def completed(self, holder: Holder) -> None:
        """The holder's request is complete: it will be answered, and its memory released then."""
        if holder.unproven_bytes:
            self._unproven -= holder.unproven_bytes
            holder.unproven_bytes = 0
            self._serve()

    def release(self, size: int) -> None:
        """Release bytes, which go to waiting connections."""
        self._used -= size
        self._gauge.value = self._used
        if self._proven_line or self._known_line or self._new_line:
            self._serve()

    def forget(self, holder: Holder) -> None:
        """The connection is gone; it does not wait any more."""
        self.holders.discard(holder)
        self._proven_line = deque(entry for entry in self._proven_line if entry[0] is not holder)
        self._known_line = deque(entry for entry in self._known_line if entry[0] is not holder)
        self._new_line = deque(entry for entry in self._new_line if entry[0] is not holder)
        self.completed(holder)
        self._serve()  # it may have stood in front of others

    def _proven(self, holder: Holder) -> bool:
        return holder.last_produced_ms > self._clock.monotonic_ms() - _SERVED_MS

    def _other_line(self, holder: Holder) -> _Line:
        return self._known_line if holder.last_produced_ms >= 0 else self._new_line

    def _anybody_waits(self) -> bool:
        return bool(self._proven_line or self._known_line or self._new_line)

    def _fits(self, holder: Holder, size: int, *, proven: bool) -> bool:
        if self._used + size > self._limit:
            return False
        # Alone it may have more than half: every request fits into the account.
        return proven or self._unproven in (0, holder.unproven_bytes) or self._unproven + size <= self._limit // 2

    def _give(self, holder: Holder, size: int, *, proven: bool) -> None:
        self._used += size
        self._gauge.value = self._used
        if not proven:
            self._unproven += size
            holder.unproven_bytes += size

    def _serve(self) -> None:
        if self._serving or not self._anybody_waits():
            return
        self._serving = True
        while self._serve_next():
            continue
        self._serving = False

    def _serve_next(self) -> bool:
        lines = self._lines()
        if self._served % _TURNS == 0:
            lines.append(lines.pop(0))
        for line, proven in lines:
            if not line:
                continue
            holder, size = line[0]
            if self._fits(holder, size, proven=proven):
                line.popleft()
                self._served += 1
                self._give(holder, size, proven=proven)
                holder.memory_granted()
                return True
            if self._used + size > self._limit:
                return False
        return False

    def _check_later(self) -> None:
        if not self._checking:
            self._checking = True
            self._deadlines.at(self._clock.monotonic_ms() + _STALLED_MS, self._check)

    def _check(self) -> None:
        self._checking = False
        waiting = {id(holder) for holder, _ in self._each_waiting()}
        if not waiting:
            return
        before_ms = self._clock.monotonic_ms() - _STALLED_MS
        stalled = [
            holder
            for holder in self.holders
            if holder.keeps_us_waiting() and holder.last_progress_ms <= before_ms and id(holder) not in waiting
        ]
        for holder in sorted(stalled, key=lambda stalled: stalled.last_progress_ms):
            if not self._anybody_waits():
                break
            self._reclaim(holder)
        self._break_ties()
        if self._anybody_waits():
            self._check_later()

    def _break_ties(self) -> None:
        """Close queued connections that hold memory which the first in the queue could otherwise never get."""
        lines = self._lines()
        for at, (line, proven) in enumerate(lines):
            if not line:
                continue
            head, size = line[0]
            room = self._limit if proven else self._limit // 2
            held = sum(_held(holder, proven=proven) for holder, _ in self._each_waiting())
            own = _held(head, proven=proven)
            # Not its next part alone: with that it would stand at the end of the line again, and the next one too.
            whole = head.whole_request_bytes() - head.half_request_bytes()
            wanted = max(size, min(whole, room // _TIE_SHARE))
            behind = [
                holder for lower, _ in reversed(lines[at:]) for holder, _ in reversed(lower) if holder is not head
            ]
            for holder in behind:
                if held == own or held + wanted <= room:
                    break
                freed = _held(holder, proven=proven)
                if freed:
                    held -= freed
                    self._reclaim(holder)

    def _reclaim(self, holder: Holder) -> None:
        self._reclaimed.value += 1
        holder.reclaim()

    def _lines(self) -> list[tuple[_Line, bool]]:
        return [(self._proven_line, True), (self._known_line, False), (self._new_line, False)]

    def _each_waiting(self) -> Iterable[tuple[Holder, int]]:
        yield from self._proven_line
        yield from self._known_line
        yield from self._new_line


def _held(holder: Holder, *, proven: bool) -> int:
    """The counted memory of a holder, for a `proven` connection or another."""
    return holder.half_request_bytes() if proven else holder.unproven_bytes
