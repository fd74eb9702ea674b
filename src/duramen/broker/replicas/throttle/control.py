"""The share of disk and processor for catch-up replication that others hardly notice. Pure.

Catch-up yields to producers. While no catch-up runs, before it and in pauses, the node learns the usual produce latency
over its in-sync replicas. During catch-up, each acknowledgement much slower than the usual slowest in ten lowers the
rate, and each other one raises it by a ninth as much. So the rate settles where one in ten is that slow: a weighted
staircase (Kaernbach, "Simple adaptive testing with the weighted up-down method", 1991). Acknowledgements slower than
the usual slowest in a hundred lower it more: with occasional stalls, the rate settles where three in a hundred are that
slow.

Catch-up ends in bounded time: there is a minimum rate above the write rate, and it doubles repeatedly while catch-up
lasts.
"""

import math
from typing import Final

from duramen.broker.replicas.throttle.ack_latency import Acknowledgements

__all__ = ["FIRST_RATE", "LEAST_RATE", "MOST_RATE", "CatchUpRate"]

LEAST_RATE: Final = 4 << 20
"""The initial rate in bytes a second, whatever producers' latency is."""
FIRST_RATE: Final = 16 << 20
"""Bytes a second with which it begins."""
MOST_RATE: Final = 8 << 30
"""Bytes a second that nothing goes beyond."""

_PATIENCE_MS: Final = 300_000
"""The period in which the minimum rate doubles."""
_WINDOW_MS: Final = 100
_QUIET_BYTES: Final = 64 << 10
"""Less than this in a window is nothing that others could feel."""
_REST_WINDOWS: Final = 30
"""The number of consecutive quiet windows, longer than a pause, after which the next catch-up starts afresh."""
_GAIN: Final = 2.0
"""The minimum rate as a multiple of the write rate: otherwise the lag would grow."""
_SMOOTH: Final = 8.0
_SLOWER: Final = 1.35
_SLOWER_FOLLOWED: Final = 1.42
"""The factor by which latency known to a follower differs from that at its leader, with a smaller effect: 1.35."""
_STEP: Final = 0.002
_STEPS: Final = 20.0
"""More samples in a window than these do not raise the rate faster."""
_MOST_STEPS: Final = 4.0
"""Of each sample, where there are few."""
_FALL: Final = 0.35
"""Times the rate at least in a window: a machine may stand still for a moment."""
_ALONE: Final = 1.25
"""The factor by which the rate grows in each window without writes."""
_SILENT_WINDOWS: Final = 10
"""Consecutive windows without an acknowledgement that mean no writes; fewer may mean a stalled disk."""


class CatchUpRate:
    """A rate in bytes a second. Times are those of a monotonic clock, in ms; events come in their order."""

    def __init__(self, now_ms: int) -> None:
        self._window_ms = now_ms
        self._sent_bytes = 0
        self._wrote_bytes = 0
        self._written_rate = 0.0
        self._led = Acknowledgements(_SLOWER)
        self._followed = Acknowledgements(_SLOWER_FOLLOWED)
        self._began_ms: int | None = None  # the time since which a follower catches up
        self._quiet = 0
        self._silent = _SILENT_WINDOWS  # windows in a row in which nothing was acknowledged
        self._rate = float(FIRST_RATE)
        self._alone = 1.0  # the factor of the rate while there are no writes

    def took(self, taken_us: int, now_ms: int, *, leads: bool, paused: bool) -> None:
        """The time until all in-sync replicas had a batch on disk; `paused`: no follower caught up."""
        self._close(now_ms)
        self._alone = 1.0
        (self._led if leads else self._followed).took(taken_us, paused=paused)

    def wrote(self, size: int, now_ms: int) -> None:
        """Bytes were written to partitions that this node leads."""
        self._close(now_ms)
        self._wrote_bytes += size

    def sent(self, size: int, now_ms: int) -> None:
        """Bytes were sent to a follower that catches up."""
        self._close(now_ms)
        self._sent_bytes += size

    def rate(self, now_ms: int) -> int:
        """Bytes a second that may go now."""
        self._close(now_ms)
        return int(min(self._rate * self._alone, MOST_RATE))

    def has_writers(self, now_ms: int) -> bool:
        """Whether there is anybody to give way to."""
        self._close(now_ms)
        return self._count > 0 or self._silent < _SILENT_WINDOWS

    @property
    def _count(self) -> int:
        return self._led.count + self._followed.count

    def _close(self, now_ms: int) -> None:
        """A window may be over. Where others were before it in which nothing happened they were quiet ones."""
        windows = (now_ms - self._window_ms) // _WINDOW_MS
        if windows < 1:
            return
        wrote_rate = self._wrote_bytes * 1000 / (windows * _WINDOW_MS)
        self._written_rate += (wrote_rate - self._written_rate) * min(1.0, windows / _SMOOTH)
        self._silent = windows - 1 if self._count else self._silent + windows
        if self._sent_bytes < _QUIET_BYTES:
            self._rest(windows)
        else:
            self._work(now_ms)
            self._quiet = windows - 1
        self._window_ms += windows * _WINDOW_MS
        self._sent_bytes = self._wrote_bytes = 0
        self._led.forget()
        self._followed.forget()

    def _rest(self, windows: int) -> None:
        self._quiet += windows
        # A quiet window outside of a pause is so by chance: other nodes may be busy with catch-up.
        for acknowledgements in (self._led, self._followed):
            acknowledgements.learn(paused=self._began_ms is not None)
        if self._quiet >= _REST_WINDOWS:
            self._began_ms = None
            self._rate, self._alone = float(FIRST_RATE), 1.0

    def _work(self, now_ms: int) -> None:
        if self._began_ms is None:
            self._began_ms = now_ms
        if self._count:
            step = _STEP * min(_MOST_STEPS, _STEPS / self._count)
            self._rate *= max(_FALL, math.exp(step * (self._led.steps() + self._followed.steps())))
        elif self._silent > _SILENT_WINDOWS:
            self._alone = min(self._alone * _ALONE, float(MOST_RATE))
        least = max(LEAST_RATE * 2.0 ** min(64.0, (now_ms - self._began_ms) / _PATIENCE_MS), _GAIN * self._written_rate)
        self._rate = min(max(self._rate, least), float(MOST_RATE))
