"""Results as tables for people."""

from collections.abc import Sequence

from rich.table import Table

from duramen.bench.contenders import SYNCED
from duramen.bench.latency import BARE, BARE_SYNCED, LatencyCell
from duramen.bench.report.sizes import size_name
from duramen.bench.report.targets import TargetOutcome
from duramen.bench.throughput import ThroughputCell

__all__ = ["latency_table", "targets_table", "throughput_table"]

_SHOWN = (0.0, 50.0, 90.0, 99.0, 99.9)


def latency_table(cells: Sequence[LatencyCell]) -> Table:
    """A row for each cell; percentiles that the sample does not carry are left out, the maximum is always there."""
    table = Table(title="Publish to acknowledgement, in ms, from when the message was due")
    table.add_column("size", justify="right")
    table.add_column("who")
    for point in _SHOWN:
        table.add_column(f"p{point:g}", justify="right")
    for name in ("max", "samples", "p50 of runs", "p99 of runs", "p50 : os", "p50 - T"):
        table.add_column(name, justify="right")
    for cell in cells:
        merged = cell.merged
        row = [size_name(cell.value_bytes), _who(cell.name, cell.door)]
        for point in _SHOWN:
            at = merged.at_ms(point)
            row.append("max" if at is None else f"{at:.2f}")
        row += [f"{merged.max_ms:.2f}", str(merged.count), _spread(cell, 50.0), _spread(cell, 99.0)]
        row += [_beside_os(cells, cell), _over_bare(cells, cell)]
        table.add_row(*row, end_section=cell is _last_of_size(cells, cell.value_bytes))
    table.caption = (
        "max: fewer than ten samples lie beyond that percentile, so only the maximum says anything."
        " T: a bare write + fdatasync of the same size at the same rate."
    )
    return table


def _who(name: str, door: str) -> str:
    return name if door == "file" else f"{name} ({door})"


def _last_of_size(cells: Sequence[LatencyCell | ThroughputCell], value_bytes: int) -> LatencyCell | ThroughputCell:
    return [cell for cell in cells if cell.value_bytes == value_bytes][-1]


def _spread(cell: LatencyCell, percentile: float) -> str:
    spread = cell.spread_ms(percentile)
    return "" if spread is None else f"{spread[0]:.2f}-{spread[1]:.2f}"


def _p50_of(cells: Sequence[LatencyCell], name: str, value_bytes: int) -> float | None:
    found = [cell.merged.at_ms(50.0) for cell in cells if (cell.name, cell.value_bytes) == (name, value_bytes)]
    return found[0] if found else None


def _beside_os(cells: Sequence[LatencyCell], cell: LatencyCell) -> str:
    """The ratio to our own `os`, and that one's figure."""
    base, at = _p50_of(cells, "duramen os", cell.value_bytes), cell.merged.at_ms(50.0)
    return "" if base is None or at is None else f"{at / base:.2f} x {base:.2f}"


def _over_bare(cells: Sequence[LatencyCell], cell: LatencyCell) -> str:
    base, at = _p50_of(cells, BARE_SYNCED, cell.value_bytes), cell.merged.at_ms(50.0)
    return "" if base is None or at is None else f"{at - base:+.2f}"


def throughput_table(cells: Sequence[ThroughputCell]) -> Table:
    """A row for each cell; the ratio to our own `os` stands beside that one's figure."""
    table = Table(title="Messages a second: until all are acknowledged, until all are read")
    table.add_column("size", justify="right")
    table.add_column("who")
    for name in ("messages", "published/s", "MB/s", ": os", ": bare", "read/s", "MB/s"):
        table.add_column(name, justify="right")
    for cell in cells:
        read = cell.read_hz
        table.add_row(
            size_name(cell.value_bytes),
            _who(cell.name, cell.door),
            f"{cell.messages:,}",
            f"{cell.published_hz:,.0f}",
            f"{cell.published_hz * cell.value_bytes / 1e6:,.1f}",
            _ratio(cells, cell, "duramen os"),
            _ratio(cells, cell, BARE_SYNCED if cell.name in SYNCED else BARE),
            "" if read is None else f"{read:,.0f}",
            "" if read is None else f"{read * cell.value_bytes / 1e6:,.1f}",
            end_section=cell is _last_of_size(cells, cell.value_bytes),
        )
    table.caption = (
        "bare: the same bytes written in pieces of 1 MB by a loop that does nothing else, each synced where who is"
        " synced. Streams behind the NATS door are read through the Kafka door; with durability=memory there is"
        " no reading them all."
    )
    return table


def _ratio(cells: Sequence[ThroughputCell], cell: ThroughputCell, name: str) -> str:
    if cell.door == "file":
        return ""
    found = [one for one in cells if (one.name, one.value_bytes) == (name, cell.value_bytes)]
    return f"{cell.published_hz / found[0].published_hz:.2f} x {found[0].published_hz:,.0f}" if found else ""


def targets_table(outcomes: Sequence[TargetOutcome]) -> Table:
    """A row for each target."""
    table = Table(title="Targets")
    for name in ("target", "wanted", "measured", ""):
        table.add_column(name, overflow="fold")
    for outcome in outcomes:
        why = f"not measured: {outcome.short}" if outcome.short else "told"
        verdict = {True: "met", False: outcome.short, None: why}[outcome.met]
        style = {True: "green", False: "red", None: "yellow"}[outcome.met]
        table.add_row(outcome.target, outcome.wanted, outcome.measured, f"[{style}]{verdict}[/]")
    return table
