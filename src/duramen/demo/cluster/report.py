"""The report of the cluster demo: measurements as short lines. Pure."""

from dataclasses import dataclass

from duramen.demo.report import percentile, seconds_text

__all__ = ["ClusterDemoFigures", "Outage", "lines"]


@dataclass(frozen=True, slots=True)
class Outage:
    """What came of a node that went; `text` says how."""

    node: int
    text: str
    led_s: float | None
    """Until others led all of its partitions."""
    silent_s: float
    """The longest time without any acknowledgement."""
    whole_s: float | None
    """From when it was started again, or went on, until it was in sync with everything."""


@dataclass(frozen=True, slots=True)
class ClusterDemoFigures:
    """What the demo measured. `latencies_s` are in ascending order, from producing to acknowledgement."""

    flights: int
    latencies_s: list[float]
    flow_s: float
    outages: list[Outage]
    total_s: float


def lines(figures: ClusterDemoFigures) -> list[tuple[str, str]]:
    """Heading and words for each line of the report."""
    latencies = figures.latencies_s
    p50, p99, longest = (seconds_text(percentile(latencies, share)) for share in (0.5, 0.99, 1.0))
    found = [
        (
            "acknowledged",
            f"{figures.flights / figures.flow_s:,.0f} flights/s ({figures.flow_s:.0f} s), acks=all: on disk",
        ),
        ("", "on every replica that is in sync, two of three at least"),
        ("latency", f"p50 {p50}, p99 {p99}, longest {longest} (through all of it)"),
    ]
    for one in figures.outages:
        found.append((f"node {one.node}", f"{one.text}: others led after {_text(one.led_s)};"))
        found.append(("", f"nothing was acknowledged for {seconds_text(one.silent_s)} at most;"))
        found.append(("", f"in sync with everything {_text(one.whole_s)} after its return"))
    return [*found, ("altogether", f"{figures.total_s:.0f} s")]


def _text(seconds: float | None) -> str:
    return "no time that was seen" if seconds is None else seconds_text(seconds)
