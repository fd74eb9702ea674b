"""Latency by percentile as a picture: one panel a size, one line for everybody, as far as the sample carries it."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from duramen.bench.latency import LatencyCell
from duramen.bench.sizes import size_name

__all__ = ["nines", "plot_latency"]


def nines(percentile: float) -> float:
    """Where a percentile stands on an axis on which 90, 99 and 99.9 are equally far apart: 1 / (1 - p)."""
    return 100 / (100 - percentile)


def plot_latency(cells: Sequence[LatencyCell], path: Path) -> None:
    """Write the picture as PNG. Needs no display."""
    sizes = list(dict.fromkeys(cell.value_bytes for cell in cells))
    with mpl.rc_context({"font.size": 9}):
        figure = Figure(figsize=(6.5 * min(2, len(sizes)), 4.2 * ((len(sizes) + 1) // 2)), layout="constrained")
        for number, size in enumerate(sizes):
            axes = figure.add_subplot((len(sizes) + 1) // 2, min(2, len(sizes)), number + 1)
            for cell in cells:
                if cell.value_bytes != size:
                    continue
                carried = cell.merged.carried_ms()
                axes.plot([nines(at) for at in carried], list(carried.values()), marker=".", label=cell.name)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xticks(
                [nines(at) for at in (0, 50, 90, 99, 99.9, 99.99)], ["0", "50", "90", "99", "99.9", "99.99"]
            )
            axes.minorticks_off()
            axes.set_title(size_name(size))
            axes.set_xlabel("percentile")
            axes.set_ylabel("ms")
            axes.grid(visible=True, alpha=0.3)
            axes.legend(fontsize=7)
        figure.savefig(path, dpi=120)
