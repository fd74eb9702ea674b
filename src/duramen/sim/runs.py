"""Many runs on all cores, and their results: crashes, their rate, faults by stage, and the first failure."""

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple, TextIO

from duramen.sim.machine.stages import FAULTS, POSSIBLE, STAGES, cannot_fire
from duramen.sim.many import first_broken, outcomes
from duramen.sim.world import NodeWorld, RunOutcome

__all__ = [
    "ENOUGH",
    "NodeRuns",
    "NodeTotals",
    "coverage",
    "explain",
    "fault_table",
    "missing_faults",
    "run_all",
    "run_one",
]

ENOUGH: Final = 10_000
"""Runs after which every fault has come in every stage in which it can."""

_SHARE: Final = 8  # runs that a process is handed at once


class NodeTotals:
    """The totals of the runs so far."""

    def __init__(self) -> None:
        self.runs = 0
        self.crashes = 0
        self.counts: Counter[tuple[str, str]] = Counter()

    def add(self, outcome: RunOutcome) -> None:
        """One run more."""
        self.runs += 1
        self.crashes += outcome.crashes
        self.counts.update(outcome.counts)


class NodeRuns(NamedTuple):
    """The result of many runs: the first that broke a promise, and the totals."""

    broken: RunOutcome | None
    totals: NodeTotals

    @property
    def well(self) -> bool:
        """Whether every promise was kept, and every possible fault occurred."""
        return self.broken is None and (self.totals.runs < ENOUGH or not missing_faults(self.totals.counts))


def run_one(seed: int, write: Callable[[str], object] | None = None) -> RunOutcome:
    """The run of one seed."""
    return NodeWorld(seed, write).run()


def run_all(seeds: range, processes: int, out: TextIO | None = None) -> NodeRuns:
    """Run every seed or up to the first that breaks a promise; shows the progress, then prints the result.

    From `ENOUGH` runs on, a possible fault that never occurred fails like a broken promise.
    """
    out = sys.stdout if out is None else out
    totals, began_s = NodeTotals(), time.monotonic()
    with outcomes(run_one, seeds, processes, _SHARE) as found:
        broken = first_broken(
            found, totals.add, out, lambda: f"{totals.runs} of {len(seeds)} runs, {totals.crashes} crashes"
        )
    took_s = time.monotonic() - began_s
    print(
        f"{totals.crashes:,} crashes in {totals.runs:,} runs, {took_s:.1f} s on {processes} cores:"
        f" {totals.crashes / took_s:,.0f} crashes a second",
        file=out,
    )
    print(fault_table(totals.counts), file=out)
    print(coverage(totals), file=out)
    if broken is not None:
        print(explain(broken), file=out)
    return NodeRuns(broken, totals)


def missing_faults(counts: Counter[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The kinds of fault, and the stages, in which they can come and have not."""
    return tuple(cell for cell in POSSIBLE if not counts[cell])


def coverage(totals: NodeTotals) -> str:
    """Whether every fault came in every stage in which it can; aloud where enough runs have missed one."""
    never = ", ".join(f"{fault} in {stage}" for fault, stage in missing_faults(totals.counts))
    if not never:
        return "None is zero: every fault came in every stage in which it can."
    if totals.runs < ENOUGH:
        return f"Not yet in {totals.runs:,} runs: {never}."
    return f"NEVER CAME in {totals.runs:,} runs: {never}. The runs do not reach it any more."


def fault_table(counts: Counter[tuple[str, str]]) -> str:
    """How often each kind of fault came in each stage; `-` where it cannot."""

    def cell(fault: str, stage: str) -> str:
        return "-" if cannot_fire(fault, stage) else str(counts[fault, stage])

    lines = [f"{'':12}" + "".join(f"{stage:>11}" for stage in STAGES)]
    lines += [f"{fault:12}" + "".join(f"{cell(fault, stage):>11}" for stage in STAGES) for fault in FAULTS]
    return "\n".join(lines)


def explain(outcome: RunOutcome) -> str:
    """The broken promise of a run, and the command that repeats it."""
    return "\n".join(
        [
            f"seed {outcome.seed} broke a promise: {outcome.broken}",
            *outcome.trace,
            f"again: make sim SEED={outcome.seed}   (or: python -m duramen.sim --seed {outcome.seed} --trace FILE)",
        ]
    )
