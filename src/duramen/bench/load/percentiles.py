"""Latencies in the buckets of an HdrHistogram, and the percentiles that the sample supports. Pure.

The buckets are those of hdrhistogram.org for three significant digits: up to 2,047 every value has its own; from there
on each doubling of values is cut into 1,024.

A percentile is supported if at least ten samples lie beyond it. Otherwise a single slow moment decides it, and only the
maximum is reported.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, Self

__all__ = ["POINTS", "Latencies"]

POINTS: Final = (0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.995, 99.999, 99.9999)
"""The percentiles that are asked for, as far as a sample carries them."""

_BEYOND: Final = 10
_LONGEST_US: Final = 600_000_000
_SHARP_BITS: Final = 11


def _width(value: int) -> int:
    """How many values lie in the bucket of one."""
    return 1 << max(0, value.bit_length() - _SHARP_BITS)


class Latencies:
    """How long things took, in µs, with three significant digits; what took longer than ten minutes counts as that."""

    def __init__(self, took_us: Iterable[int] = ()) -> None:
        self._counts: Counter[int] = Counter()  # by the largest value of the bucket
        for one_us in took_us:
            value = min(max(1, one_us), _LONGEST_US)
            self._counts[value | (_width(value) - 1)] += 1

    @classmethod
    def merged(cls, parts: Iterable["Latencies"]) -> Self:
        """All samples of several runs together."""
        whole = cls()
        for part in parts:
            whole._counts += part._counts
        return whole

    @property
    def count(self) -> int:
        """How many samples there are."""
        return self._counts.total()

    @property
    def max_ms(self) -> float:
        """The slowest; 0 of no samples."""
        return max(self._counts, default=0) / 1000

    def carries(self, percentile: float) -> bool:
        """Whether at least ten samples lie beyond a percentile (0: whether there is any)."""
        beyond = self.count * (100 - percentile) / 100
        # A hair's breadth for what floating point makes of 99.9.
        return beyond >= _BEYOND - 1e-6 or (percentile == 0 and self.count > 0)

    def at_ms(self, percentile: float) -> float | None:
        """The latency at a percentile in ms; None where the sample does not carry it."""
        if not self.carries(percentile):
            return None
        if percentile == 0:
            least = min(self._counts)
            return (least - _width(least) + 1) / 1000
        beyond = self.count - max(1, int(self.count * percentile / 100 + 0.5))
        for value in sorted(self._counts, reverse=True):
            beyond -= self._counts[value]
            if beyond < 0:
                return value / 1000
        return None

    def carried_ms(self) -> dict[float, float]:
        """Percentile to latency in ms, for every one of POINTS that the sample carries."""
        found = {point: self.at_ms(point) for point in POINTS}
        return {point: value for point, value in found.items() if value is not None}
