"""A target, and whether a measurement meets it. Pure."""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from duramen.base.errors import RequestInvalid

__all__ = ["Rounds", "TargetOutcome", "at_least", "at_most", "not_measured", "told"]


class TargetOutcome(NamedTuple):
    """One target: what was wanted and measured, as text, and whether it is met; None where nothing was measured.

    `short` says by how much it falls short, or why it was not measured; empty where it is met.
    """

    target: str
    wanted: str
    measured: str
    met: bool | None
    short: str


def at_least(target: str, ratio: float, wanted: float, than: str, absolute: str) -> TargetOutcome:
    """A ratio to something else that is to be at least so much; `absolute` has the figures behind it."""
    met = ratio >= wanted
    short = "" if met else f"{100 * (1 - ratio / wanted):.0f} % short"
    return TargetOutcome(target, f"at least {wanted:g} x {than}", f"{ratio:.2f} x ({absolute})", met, short)


def at_most(target: str, value: float, wanted: float, unit: str, absolute: str = "", limit: str = "") -> TargetOutcome:
    """A figure that is to be at most so much; `limit` says what that stands for."""
    met = value <= wanted or math.isclose(value, wanted)  # sums of hundredths are a little off
    short = "" if met else f"{_figure(value - wanted)} {unit} over"
    text = f"{_figure(value)} {unit}" + (f" ({absolute})" if absolute else "")
    return TargetOutcome(
        target, f"at most {_figure(wanted)} {unit}" + (f" ({limit})" if limit else ""), text, met, short
    )


def _figure(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def not_measured(target: str, wanted: str, why: str) -> TargetOutcome:
    """A target of which this run says nothing."""
    return TargetOutcome(target, wanted, "", None, why)


def told(what: str, measured: str) -> TargetOutcome:
    """A figure of which nothing was wanted but that it is told."""
    return TargetOutcome(what, "", measured, None, "")


class Rounds:
    """Figures of several systems, taken in turns: one of each in every round."""

    def __init__(self) -> None:
        self._figures: dict[str, list[float]] = {}

    def add(self, name: str, figure: float) -> None:
        """The figure of one system in the round at hand."""
        self._figures.setdefault(name, []).append(figure)

    @property
    def medians(self) -> Mapping[str, float]:
        """Of each system."""
        return {name: median(figures) for name, figures in self._figures.items()}

    @property
    def figures(self) -> Mapping[str, Sequence[float]]:
        """All of them, in the order of the rounds."""
        return self._figures

    def ratio(self, name: str, than: str) -> float:
        """The median of the rounds' ratios, so that a bad moment of the machine, which hits both, counts for little.

        Raises RequestInvalid where the two were not measured in the same rounds.
        """
        ours, others = self._figures.get(name, []), self._figures.get(than, [])
        if not ours or len(ours) != len(others):
            raise RequestInvalid(f"{name} and {than} were not measured in the same rounds")
        return median(one / other for one, other in zip(ours, others, strict=True))
