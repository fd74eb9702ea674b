"""Plots: latency by percentile, as far as the sample supports it; and nodes by their number of topics."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from duramen.bench.latency import LatencyCell
from duramen.bench.report.sizes import size_name

__all__ = ["CurvePoint", "nines", "plot_curves", "plot_latency"]

_TICKS: Final = (0, 50, 90, 95, 99, 99.9, 99.99, 99.999)


def nines(percentile: float) -> float:
    """Where a percentile stands on an axis on which 90, 99 and 99.9 are equally far apart: 1 / (1 - p)."""
    return 100 / (100 - percentile)


def plot_latency(cells: Sequence[LatencyCell], path: Path) -> None:
    """Write the picture as PNG. Needs no display."""
    sizes = list(dict.fromkeys(cell.value_bytes for cell in cells))
    columns, rows = min(2, len(sizes)), (len(sizes) + 1) // 2
    with mpl.rc_context({"font.size": 9}):
        figure = Figure(figsize=(6.5 * columns, 4.2 * rows), layout="constrained")
        for number, size in enumerate(sizes):
            axes = figure.add_subplot(rows, columns, number + 1)
            _panel(axes, size_name(size), [cell for cell in cells if cell.value_bytes == size])
        figure.savefig(path, dpi=120)


def _panel(axes: Axes, title: str, cells: Sequence[LatencyCell]) -> None:
    farthest = 0.0
    for cell in cells:
        carried = cell.merged.carried_ms()
        axes.plot([nines(at) for at in carried], list(carried.values()), marker=".", label=cell.name)
        farthest = max(farthest, *carried)
    ticks = [at for at in _TICKS if at <= farthest]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([nines(at) for at in ticks], [f"{at:g}" for at in ticks])
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.minorticks_off()
    axes.set_title(title)
    axes.set_xlabel("percentile, as far as ten samples lie beyond it")
    axes.set_ylabel("ms")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=7)


class CurvePoint(NamedTuple):
    """Of a node with so many topics: how fast the last of them were made, its memory, and how long a restart takes."""

    topics: int
    create_hz: float
    memory_mib: float
    restart_s: float | None

    def __str__(self) -> str:
        restart = "not restarted" if self.restart_s is None else f"restarted in {self.restart_s:.2f} s"
        return f"the last ones at {self.create_hz:,.0f}/s, {self.memory_mib:,.0f} MiB, {restart}"


_CURVES: Final[Mapping[str, Callable[[CurvePoint], float | None]]] = {
    "topics created a second": lambda point: point.create_hz,
    "resident memory, MiB": lambda point: point.memory_mib,
    "restart until a record is acknowledged, s": lambda point: point.restart_s,
}


def plot_curves(curves: Mapping[str, Sequence[CurvePoint]], path: Path) -> None:
    """Write the picture in the format of its name. Needs no display."""
    with mpl.rc_context({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "duramen"}):
        figure = Figure(figsize=(4.2 * len(_CURVES), 3.6), layout="constrained")
        for number, (title, value) in enumerate(_CURVES.items(), 1):
            axes = figure.add_subplot(1, len(_CURVES), number)
            for name, points in curves.items():
                shown = [(point.topics, found) for point in points if (found := value(point)) is not None]
                axes.plot([at for at, _ in shown], [found for _, found in shown], marker="o", markersize=3, label=name)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_title(title)
            axes.set_xlabel("topics")
            axes.grid(visible=True, alpha=0.3)
            axes.legend(fontsize=7)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
