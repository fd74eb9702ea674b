"""Many cluster runs on all cores, and their results: requests, rates, faults, and the first failure."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final, NamedTuple, TextIO

from duramen.sim.cluster.world import ClusterOutcome, ClusterWorld
from duramen.sim.many import first_broken, outcomes

__all__ = ["ClusterRuns", "ClusterTotals", "explain", "run_all", "run_one", "table"]

_SHARE: Final = 2  # runs that a process is handed at once


class ClusterTotals:
    """The totals of the runs so far."""

    def __init__(self) -> None:
        self.runs = 0
        self.operations = 0
        self.seconds = 0.0  # of the clusters' own time
        self.faults: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()

    def add(self, outcome: ClusterOutcome) -> None:
        """One run more."""
        self.runs += 1
        self.operations += outcome.operations
        self.seconds += outcome.seconds
        self.faults.update(outcome.faults)
        self.counts.update(outcome.counts)
        self.counts["answered well"] += outcome.well


class ClusterRuns(NamedTuple):
    """The result of many runs: the first that broke a promise, and the totals."""

    broken: ClusterOutcome | None
    totals: ClusterTotals

    @property
    def well(self) -> bool:
        """Whether every promise was kept."""
        return self.broken is None


def run_one(seed: int, write: Callable[[str], object] | None = None, faults: Collection[str] = ()) -> ClusterOutcome:
    """The run of one seed, with these kinds of faults alone if any are named."""
    return ClusterWorld(seed, write, faults).run()


def run_all(seeds: range, processes: int, out: TextIO | None = None) -> ClusterRuns:
    """Run every seed or up to the first that breaks a promise; shows the progress, then prints the result."""
    out = sys.stdout if out is None else out
    totals, began_s = ClusterTotals(), time.monotonic()
    with outcomes(run_one, seeds, processes, _SHARE) as found:
        broken = first_broken(found, totals.add, out, lambda: f"{totals.runs} of {len(seeds)} clusters")
    took_s = time.monotonic() - began_s
    print(
        f"{totals.operations:,} requests and {totals.faults.total():,} faults in {totals.runs:,} clusters,"
        f" {took_s:.1f} s on {processes} cores: {totals.runs / took_s:.2f} clusters and"
        f" {totals.operations / took_s:,.0f} requests a second; {totals.seconds / took_s:.0f} times as fast as time",
        file=out,
    )
    print(table(totals), file=out)
    if broken is not None:
        print(explain(broken), file=out)
    return ClusterRuns(broken, totals)


def table(totals: ClusterTotals) -> str:
    """How often each kind of fault occurred, and other counts."""
    lines = [f"{name:28}{number:>12,}" for name, number in sorted(totals.faults.items())]
    return "\n".join([*lines, "", *(f"{name:28}{number:>12,}" for name, number in sorted(totals.counts.items()))])


def explain(outcome: ClusterOutcome) -> str:
    """The broken promise of a run, and the command that repeats it."""
    again = f"python -m duramen.sim --cluster --seed {outcome.seed} --trace FILE"
    return "\n".join([f"cluster {outcome.seed} broke a promise: {outcome.broken}", *outcome.trace, f"again: {again}"])
