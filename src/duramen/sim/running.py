"""Many runs on all cores, and what they came to: crashes, their rate, faults by stage, and the first that failed."""

import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

from duramen.sim.faults import FAULTS, STAGES
from duramen.sim.stages import cannot_fire
from duramen.sim.world import Outcome, World

__all__ = ["Totals", "explain", "fault_table", "run_all", "run_one"]

_SHARE = 8  # runs that a process is handed at once


class Totals:
    """What the runs so far came to."""

    def __init__(self) -> None:
        self.runs = 0
        self.crashes = 0
        self.counts: Counter[tuple[str, str]] = Counter()

    def add(self, outcome: Outcome) -> None:
        """One run more."""
        self.runs += 1
        self.crashes += outcome.crashes
        self.counts.update(outcome.counts)


def run_one(seed: int, write: Callable[[str], object] | None = None) -> Outcome:
    """The run of one seed."""
    return World(seed, write).run()


@contextmanager
def _outcomes(seeds: Iterable[int], processes: int) -> Iterator[Iterator[Outcome]]:
    if processes == 1:
        yield map(run_one, seeds)
        return
    with multiprocessing.get_context("forkserver").Pool(processes) as pool:
        yield pool.imap(run_one, seeds, _SHARE)


def run_all(seeds: range, processes: int, out: TextIO | None = None) -> Outcome | None:
    """Run every seed, show how far it is, and say what came of it; returns the first run that failed."""
    out = sys.stdout if out is None else out
    totals, began_s, shown_s = Totals(), time.monotonic(), 0.0
    broken: Outcome | None = None
    with _outcomes(seeds, processes) as outcomes:
        for outcome in outcomes:
            totals.add(outcome)
            if outcome.broken:
                broken = outcome
                break
            now_s = time.monotonic()
            if out.isatty() and now_s - shown_s > 0.2:
                shown_s = now_s
                print(f"\r{totals.runs} of {len(seeds)} runs, {totals.crashes} crashes", end="", file=out, flush=True)
    took_s = time.monotonic() - began_s
    if out.isatty():
        print("\r", end="", file=out)
    print(
        f"{totals.crashes:,} crashes in {totals.runs:,} runs, {took_s:.1f} s on {processes} cores:"
        f" {totals.crashes / took_s:,.0f} crashes a second",
        file=out,
    )
    print(fault_table(totals.counts), file=out)
    if broken is not None:
        print(explain(broken), file=out)
    return broken


def fault_table(counts: Counter[tuple[str, str]]) -> str:
    """How often each kind of fault came in each stage; `-` where it cannot."""

    def cell(fault: str, stage: str) -> str:
        return "-" if cannot_fire(fault, stage) and not counts[fault, stage] else str(counts[fault, stage])

    lines = [f"{'':12}" + "".join(f"{stage:>11}" for stage in STAGES)]
    lines += [f"{fault:12}" + "".join(f"{cell(fault, stage):>11}" for stage in STAGES) for fault in FAULTS]
    return "\n".join(lines)


def explain(outcome: Outcome) -> str:
    """What went wrong in a run, and how to see it again."""
    return "\n".join(
        [
            f"seed {outcome.seed} broke a promise: {outcome.broken}",
            *outcome.trace,
            f"again: make sim SEED={outcome.seed}   (or: python -m duramen.sim --seed {outcome.seed} --trace FILE)",
        ]
    )
