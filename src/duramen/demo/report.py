"""The report: measurements as short lines. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["DemoFigures", "bytes_text", "lines", "listing", "percentile", "seconds_text"]

_UNITS: Final = ("B", "kB", "MB", "GB")


@dataclass(frozen=True, slots=True)
class DemoFigures:
    """What the demo measured. `latencies_s` are in ascending order, from the first publishing to acknowledgement."""

    flights: int
    body_bytes: int
    window: int
    latencies_s: list[float]
    publish_s: float
    read_s: float
    recovery_s: float
    log_bytes: int
    disk_bytes: int
    spark_s: float
    total_s: float


def bytes_text(count: float) -> str:
    """A count of bytes as people say it: `118 MB`."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            break
        count /= 1000
    return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"


def seconds_text(seconds: float) -> str:
    """A time as people say it: `12 ms`, `1.24 s`, `83 s`."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"


def lines(figures: DemoFigures) -> list[tuple[str, str]]:
    """Heading and words for each line of the report."""
    latencies = figures.latencies_s
    p50, p99, longest = (seconds_text(percentile(latencies, share)) for share in (0.5, 0.99, 1.0))
    records, everything = bytes_text(figures.log_bytes), bytes_text(figures.disk_bytes)
    return [
        ("published", f"{_rate(figures.flights, figures.publish_s)}, each acknowledged once on disk"),
        ("acknowledged", f"p50 {p50}, p99 {p99}, longest {longest} (through the crash),"),
        ("", f"with up to {figures.window:,} under way at once"),
        ("read", f"{_rate(figures.flights, figures.read_s)}, by two Kafka consumers"),
        ("crash", f"first acknowledgement {seconds_text(figures.recovery_s)} after the kill -9"),
        ("on disk", f"{records} of records for {bytes_text(figures.body_bytes)} of JSON; {everything} with the WAL"),
        ("Spark", f"{_rate(figures.flights, figures.spark_s)}, its start not counted"),
        ("altogether", f"{figures.total_s:.0f} s"),
    ]


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:,.0f} flights/s ({seconds_text(seconds)})"


def listing(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Lines with their headings below each other."""
    rows = list(rows)
    width = max((len(heading) for heading, _ in rows), default=0)
    return [f"{heading:<{width}}  {words}" for heading, words in rows]


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the measurements, in ascending order, that at least `share` of them do not exceed; 0 of none."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
