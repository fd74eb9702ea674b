"""The Clock and Randomness ports."""

import os
import time

__all__ = ["HostClock", "HostRandomness"]


class HostClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    seconds = staticmethod(time.perf_counter)  # no call of a Python function: it is asked at each request

    def pause(self, duration_s: float) -> None:
        time.sleep(duration_s)


class HostRandomness:
    """The system's randomness."""

    def token(self, size: int) -> bytes:
        return os.urandom(size)
