"""The timeline as a plot: leaders, in-sync sets, unavailable nodes, acknowledgements."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from duramen.demo.cluster.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["TITLE", "draw"]

TITLE: Final = "What the cluster did while the flights flowed"

_COLOURS: Final = ("#3b75af", "#e08f35", "#519d3e", "#8d69b8", "#84584e")
_GONE: Final = "#c0392b"
_WIDTH_S: Final = 0.25
_LEADS: Final = 0.42
"""How high the band of the leader is in the row of a partition; below it is a line for each node that is in sync."""


def draw(timeline: Timeline, path: Path) -> None:
    """Draw it into a PNG file."""
    # On a new machine it looks for fonts and says so; nobody has to know.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib.figure import Figure

    rows = len(timeline.nodes) + 1 + timeline.partitions
    figure = Figure(figsize=(11, 0.42 * rows + 3.2), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[rows, 5])
    _draw_rows(above, timeline)
    _draw_rate(below, timeline)
    for axes in (above, below):
        for one in timeline.happenings:
            axes.axvline(one.at_s, color=_GONE if one.gone else "#777777", linewidth=0.8, linestyle=":")
        axes.spines[["top", "right"]].set_visible(False)
    below.set_xlim(0, timeline.end_s)
    below.set_xlabel("seconds")
    above.set_title(TITLE, loc="left", fontsize=12)
    figure.savefig(path, dpi=130)


def _colour(timeline: Timeline, node: int) -> str:
    return _COLOURS[timeline.nodes.index(node) % len(_COLOURS)]


def _draw_rows(axes: "Axes", timeline: Timeline) -> None:
    names: list[str] = []
    for node in timeline.nodes:
        row = len(names)
        axes.broken_barh([(0, timeline.end_s)], (row - 0.4, 0.8), color=_colour(timeline, node))
        gone = [(band.begin_s, band.end_s - band.begin_s) for band in timeline.gone(node)]
        axes.broken_barh(gone, (row - 0.4, 0.8), facecolor="white", edgecolor=_GONE)
        names.append(f"node {node}")
    for band in timeline.controllers():
        colour = _colour(timeline, band.node)
        axes.broken_barh([(band.begin_s, band.end_s - band.begin_s)], (len(names) - 0.4, 0.8), color=colour)
    names.append("leads the controller")
    for partition in range(timeline.partitions):
        _draw_partition(axes, timeline, partition, len(names))
        names.append(f"leads partition {partition}")
    for one in timeline.happenings:
        place = (one.at_s, timeline.nodes.index(one.node))
        colour = "#333333" if one.gone else "white"
        axes.annotate(
            one.text.removeprefix("is "),
            place,
            (4, 0),
            textcoords="offset points",
            fontsize=8,
            va="center",
            color=colour,
        )
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(length=0)


def _draw_partition(axes: "Axes", timeline: Timeline, partition: int, row: int) -> None:
    for band in timeline.leaders(partition):
        colour = _colour(timeline, band.node)
        axes.broken_barh([(band.begin_s, band.end_s - band.begin_s)], (row - 0.42, _LEADS), color=colour)
    height = 0.3 / len(timeline.nodes)
    for at, node in enumerate(timeline.nodes):
        place = (row + 0.06 + at * height, 0.8 * height)
        axes.broken_barh([(0, timeline.end_s)], place, color=_colour(timeline, node))
        out = [(band.begin_s, band.end_s - band.begin_s) for band in timeline.out_of_sync(partition, node)]
        axes.broken_barh(out, place, color="white")


def _draw_rate(axes: "Axes", timeline: Timeline) -> None:
    rates = timeline.rates(_WIDTH_S)
    axes.fill_between(
        [at_s for at_s, _ in rates], [rate for _, rate in rates], color="#555555", alpha=0.35, linewidth=0
    )
    axes.plot([at_s for at_s, _ in rates], [rate for _, rate in rates], color="#555555", linewidth=1)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("acknowledged/s")
