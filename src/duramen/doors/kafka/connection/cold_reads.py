"""Throttles reads from disk in favour of writes: while clients write, they rest in between.

A consumer far behind the tail takes all available processor time: the broker's for reading and sending, its own for
processing. Producers would wait behind it. So for the time that such reads take on all connections together, a multiple
is left to other clients while there are any.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from duramen.base.deadlines import Deadlines
from duramen.base.ports import Clock
from duramen.storage.segment.reader import Blocked

__all__ = ["ColdReads"]

_Done = Callable[[BaseException | None], None]

_LONGEST_S: Final = 0.02  # a disk that stands still is not to make readers stand still as long again
_WRITING_S: Final = 0.5  # since the last append
_SMOOTHING: Final = 8
_LEAST_SHARE: Final = 0.01


class _Store(Protocol):
    @property
    def wal_end(self) -> int:
        """Grows with every append."""

    def unblock(self, blocked: Blocked, done: _Done) -> None:
        """Execute the read's blocking job."""


class ColdReads:
    """The reads of all connections of a door, each in its turn."""

    def __init__(self, store: _Store, clock: Clock, deadlines: Deadlines, share: float) -> None:
        """`share`: of the time, at most 1, which lets them rest never; they always get a hundredth."""
        self._store = store
        self._clock = clock
        self._deadlines = deadlines
        self._share = max(_LEAST_SHARE, share)
        self._usual_s = 0.0  # the memory of a read, sending included
        self._next_s = 0.0  # when the turn of the next one comes
        self._wal_end = store.wal_end
        self._written_s = -_WRITING_S

    def read(self, blocked: Blocked, done: _Done) -> None:
        """Execute a read's blocking job, now or in its turn; then `done(None)`, or `done(error)`."""
        now_s = self._clock.seconds()
        turn_s = now_s if self.alone else max(now_s, self._next_s)
        self._next_s = turn_s + self._usual_s / self._share
        delay_ms = int((turn_s - now_s) * 1000)
        if delay_ms:
            at_ms = self._clock.monotonic_ms() + delay_ms
            self._deadlines.at(at_ms, partial(self._begin, blocked, done))
        else:
            self._begin(blocked, done)

    @property
    def alone(self) -> bool:
        """Whether no client writes for which time would be left."""
        now_s = self._clock.seconds()
        wal_end = self._store.wal_end
        if wal_end != self._wal_end:
            self._wal_end, self._written_s = wal_end, now_s
        return self._share >= 1 or now_s - self._written_s >= _WRITING_S

    def _begin(self, blocked: Blocked, done: _Done) -> None:
        began_s = self._clock.seconds()

        def finished(error: BaseException | None) -> None:
            done(error)
            took_s = min(self._clock.seconds() - began_s, _LONGEST_S)
            self._usual_s += (took_s - self._usual_s) / _SMOOTHING

        self._store.unblock(blocked, finished)
