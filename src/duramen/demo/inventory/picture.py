"""The picture of the inventory's demo: topics and memory while they are loaded."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

__all__ = ["draw"]

_MILLION: Final = 1_000_000
_MIB: Final = 1 << 20


def draw(path: Path, sights: Sequence[tuple[float, int, int]]) -> None:
    """Draw (seconds, topics, bytes of memory) to a PNG."""
    figure = Figure(figsize=(9, 4.5), dpi=120, layout="constrained")
    axes = figure.subplots()
    seconds = [one[0] for one in sights]
    axes.plot(seconds, [one[1] / _MILLION for one in sights], color="tab:blue")
    axes.set_xlabel("seconds")
    axes.set_ylabel("million topics", color="tab:blue")
    axes.set_ylim(bottom=0)
    memory = axes.twinx()
    memory.plot(seconds, [one[2] / _MIB for one in sights], color="tab:orange")
    memory.set_ylabel("memory of the node, MiB", color="tab:orange")
    memory.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    figure.savefig(path)
