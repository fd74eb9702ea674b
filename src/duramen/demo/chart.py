"""The chart: mean delays by carrier and hour."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from duramen.demo.delays import Grid

__all__ = ["TITLE", "draw"]

TITLE: Final = "New York, 2013: how many minutes late, by airline and hour of departure"


def draw(grid: Grid, airlines: Mapping[str, str], path: Path) -> None:
    """Draw a grid of mean delays into a PNG file; what nothing departed in stays white."""
    # On a new machine it looks for fonts and says so; nobody has to know.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 0.36 * len(grid.carriers) + 1.8), layout="constrained")
    axes = figure.add_subplot()
    values = [[float("nan") if mean is None else mean for mean in row] for row in grid.means]
    # Few flights late at night are very late: beyond 45 minutes every cell has the darkest colour.
    image = axes.imshow(values, cmap="YlOrRd", vmin=-5, vmax=45, aspect="auto")
    for row, means in enumerate(grid.means):
        for column, mean in enumerate(means):
            if mean is not None:
                colour = "white" if mean > 30 else "#333333"
                axes.text(column, row, f"{round(mean)}", ha="center", va="center", fontsize=8, color=colour)
    axes.set_xticks(range(len(grid.hours)), [f"{hour}" for hour in grid.hours])
    axes.set_yticks(range(len(grid.carriers)), [airlines.get(carrier, carrier) for carrier in grid.carriers])
    axes.set_xlabel("hour of scheduled departure")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(TITLE, loc="left", fontsize=12)
    figure.colorbar(image, ax=axes, extend="both", label="mean delay, minutes", pad=0.01)
    figure.savefig(path, dpi=130)
