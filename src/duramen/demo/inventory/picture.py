"""The plot of the inventory demo: topics and memory during the load, and records of Kafka clients."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["DemoMark", "draw"]

_MILLION: Final = 1_000_000
_MIB: Final = 1 << 20
_STEP_S: Final = 0.25


class DemoMark(NamedTuple):
    """Something that happened to the topics or to the node from one time to another, s."""

    text: str
    begin_s: float
    end_s: float


def draw(
    path: Path, sights: Sequence[tuple[float, int, int]], acknowledged: Sequence[tuple[float, float]],
    marks: Sequence[DemoMark],
) -> None:  # fmt: skip
    """Draw (seconds, topics, bytes of memory), and (seconds, latency in seconds) of each record, to a PNG."""
    # On a new machine it looks for fonts and says so; nobody has to know.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 10), dpi=120, layout="constrained")
    load, rate, latency = figure.subplots(3, 1)
    _draw_load(load, sights)
    _draw_rate(rate, acknowledged, marks)
    _draw_latency(latency, acknowledged)
    figure.savefig(path)


def _draw_load(axes: "Axes", sights: Sequence[tuple[float, int, int]]) -> None:
    seconds = [one[0] for one in sights]
    axes.plot(seconds, [one[1] / _MILLION for one in sights], color="tab:blue")
    axes.set_title("Topics while they are loaded", loc="left")
    axes.set_xlabel("seconds")
    axes.set_ylabel("million topics", color="tab:blue")
    axes.set_ylim(bottom=0)
    memory = axes.twinx()
    memory.plot(seconds, [one[2] / _MIB for one in sights], color="tab:orange")
    memory.set_ylabel("memory of the node, MiB", color="tab:orange")
    memory.set_ylim(bottom=0)
    axes.grid(alpha=0.3)


def _draw_rate(axes: "Axes", acknowledged: Sequence[tuple[float, float]], marks: Sequence[DemoMark]) -> None:
    first_s = acknowledged[0][0]
    steps = [0] * (int((acknowledged[-1][0] - first_s) / _STEP_S) + 1)
    for at_s, _ in acknowledged:
        steps[int((at_s - first_s) / _STEP_S)] += 1
    axes.step([at * _STEP_S for at in range(len(steps))], [count / _STEP_S for count in steps], where="post")
    for mark, colour in zip(marks, ("tab:green", "tab:red", "tab:purple"), strict=False):
        axes.axvspan(mark.begin_s - first_s, mark.end_s - first_s, alpha=0.2, color=colour, label=mark.text)
    axes.legend()
    axes.set_title("Records that Kafka producers had acknowledged", loc="left")
    axes.set_xlabel("seconds")
    axes.set_ylabel("records/s")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)


def _draw_latency(axes: "Axes", acknowledged: Sequence[tuple[float, float]]) -> None:
    in_order = sorted(latency_s for _, latency_s in acknowledged)
    axes.plot([1000 * one for one in in_order], [100 * at / len(in_order) for at in range(1, len(in_order) + 1)])
    axes.set_xscale("log")
    axes.set_title("From producing a record to its acknowledgement", loc="left")
    axes.set_xlabel("ms at most")
    axes.set_ylabel("% of all records")
    axes.grid(alpha=0.3)
