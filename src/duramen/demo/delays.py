"""Departure delays by carrier and hour: the result that Spark and pandas compute, and its display. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from duramen.base.errors import DemoFailed

__all__ = ["BLOCKS", "Delay", "Grid", "check_same", "grid_of", "mean_min"]

BLOCKS: Final = ((5, 8), (9, 12), (13, 16), (17, 20), (21, 23))
"""Hours of the day, first and last, that the table on the screen puts together."""


class Delay(NamedTuple):
    """The flights of one carrier that were to leave in one hour: how many, how many did, and their delays' sum."""

    carrier: str
    hour: int
    flights: int
    departed: int
    minutes: int


class Grid(NamedTuple):
    """Mean delays in minutes, by carrier (the latest first) and hour; None where nothing departed."""

    carriers: tuple[str, ...]
    hours: tuple[int, ...]
    means: tuple[tuple[float | None, ...], ...]


def check_same(ours: Iterable[Delay], theirs: Iterable[Delay]) -> int:
    """How many results there are. Raises DemoFailed where Spark's are not exactly those of pandas."""
    found, expected = sorted(ours), sorted(theirs)
    if found == expected:
        return len(found)
    wrong = min((Counter(found) - Counter(expected)) + (Counter(expected) - Counter(found)))
    raise DemoFailed(
        f"Spark and pandas do not agree about {wrong.carrier} at {wrong.hour} h:"
        f" {_of(found, wrong)} and {_of(expected, wrong)}"
    )


def _of(delays: Iterable[Delay], like: Delay) -> str:
    said = [
        f"{delay.minutes} minutes of {delay.departed} departures of {delay.flights} flights"
        for delay in delays
        if (delay.carrier, delay.hour) == (like.carrier, like.hour)
    ]
    return ", then ".join(said) or "nothing"


def mean_min(delays: Iterable[Delay]) -> float | None:
    """The mean delay of those that departed, in minutes; None where none did."""
    departed = minutes = 0
    for delay in delays:
        departed += delay.departed
        minutes += delay.minutes
    return minutes / departed if departed else None


def grid_of(delays: Sequence[Delay], spans: Sequence[tuple[int, int]] | None = None) -> Grid:
    """The delays as a grid with a column for each span of hours, or for each hour in which anything departed."""
    if spans is None:
        spans = [(hour, hour) for hour in sorted({delay.hour for delay in delays if delay.departed})]
    of: dict[str, list[Delay]] = {}
    for delay in delays:
        of.setdefault(delay.carrier, []).append(delay)
    carriers = sorted(of, key=lambda carrier: (-(mean_min(of[carrier]) or 0.0), carrier))
    means = tuple(
        tuple(mean_min(delay for delay in of[carrier] if first <= delay.hour <= last) for first, last in spans)
        for carrier in carriers
    )
    return Grid(tuple(carriers), tuple(first for first, _ in spans), means)
