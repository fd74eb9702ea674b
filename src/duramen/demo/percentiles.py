"""Percentiles of measurements. Pure."""

import math
from collections.abc import Sequence

__all__ = ["percentile"]


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the measurements, in ascending order, that at least `share` of them do not exceed; 0 of none."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
