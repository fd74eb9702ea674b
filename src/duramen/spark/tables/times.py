"""Dates and times of any year as text, and back: Python's own calendar covers only the years 1 to 9999. Pure.

The notation is Spark's: a year has at least four digits, and a sign outside of 0 to 9999.
"""

from typing import Final

import numpy as np

__all__ = ["DAY_US", "day_of", "day_text", "time_of", "time_text"]

DAY_US: Final = 86_400_000_000
_SECOND_US: Final = 1_000_000


def day_text(days: int) -> str:
    """The day that many days after 1970-01-01, as `2024-02-29`, `+10000-01-01` or `-0001-12-31`."""
    year, rest = str(np.datetime64(days, "D")).rsplit("-", 2)[0], str(np.datetime64(days, "D"))[-6:]
    number = int(year)
    sign = "-" if number < 0 else "+" if number > 9999 else ""
    return f"{sign}{abs(number):04d}{rest}"


def day_of(text: str) -> int:
    """The days since 1970-01-01 of a `day_text`. Raises ValueError."""
    return int(np.datetime64(text, "D").astype(np.int64))


def time_text(us: int) -> str:
    """The time that many microseconds after the start of 1970 in UTC, as `2024-02-29T03:04:05.678901`."""
    days, rest = divmod(us, DAY_US)
    seconds, fraction = divmod(rest, _SECOND_US)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{day_text(days)}T{hour:02d}:{minute:02d}:{second:02d}.{fraction:06d}"


def time_of(text: str) -> int:
    """The microseconds since 1970 of a `time_text`. Raises ValueError."""
    day, _, clock = text.partition("T")
    since_midnight = np.datetime64(f"1970-01-01T{clock}", "us").astype(np.int64)
    return day_of(day) * DAY_US + int(since_midnight)
