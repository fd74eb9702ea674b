"""`python -m duramen.sim`: thousands of simulated crashes of a node or of whole clusters, or one run again."""

import os
import sys
from collections.abc import Callable
from typing import NamedTuple

import click

from duramen.sim import runs as running
from duramen.sim.cluster import runs as clusters

__all__ = ["main"]


def _seeds(text: str) -> range:
    first, dash, last = text.partition("-")
    try:
        return range(int(first), int(last) + 1) if dash else range(1, int(first) + 1)
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a number of seeds nor FROM-TO") from None


@click.command()
@click.option("--cluster", is_flag=True, help="Run whole clusters, not one node.")
@click.option("--seeds", default="100", metavar="N|FROM-TO", help="The number of runs, or a range of seeds.")
@click.option("--seed", type=int, metavar="N", help="Run this one only.")
@click.option("--trace", type=click.Path(), metavar="FILE", help="With --seed: write each event there; - for here.")
@click.option("-j", "--jobs", type=click.IntRange(1), help="The number of concurrent runs; by default one per core.")
def main(seeds: str, seed: int | None, trace: str | None, jobs: int | None, *, cluster: bool) -> None:
    """Run the storage, the broker and its groups on a faulty disk, and check their promises.

    With --cluster: nodes, their disks and the network between them.
    """
    if seed is not None:
        sys.exit(_run_again(_cluster if cluster else _node, seed, trace))
    run_all = clusters.run_all if cluster else running.run_all
    sys.exit(0 if run_all(_seeds(seeds), jobs or os.cpu_count() or 1).well else 1)


class _RunResult(NamedTuple):
    """The result of one run: it kept every promise, or the broken one."""

    well: bool
    text: str


Write = Callable[[str], object]


def _node(seed: int, write: Write | None) -> _RunResult:
    outcome = running.run_one(seed, write)
    if outcome.broken:
        return _RunResult(well=False, text=running.explain(outcome))
    return _RunResult(well=True, text=f"seed {seed}: every promise kept, {outcome.crashes} crashes")


def _cluster(seed: int, write: Write | None) -> _RunResult:
    outcome = clusters.run_one(seed, write)
    if outcome.broken:
        return _RunResult(well=False, text=clusters.explain(outcome))
    done = f"{outcome.operations} requests and {outcome.faults.total()} faults"
    return _RunResult(well=True, text=f"cluster {seed}: every promise kept, {done}")


def _run_again(run: Callable[[int, Write | None], _RunResult], seed: int, trace: str | None) -> int:
    if trace is None:
        told = run(seed, None)
    else:
        with click.open_file(trace, "w") as file:
            told = run(seed, lambda line: print(line, file=file))
    print(told.text)
    return 0 if told.well else 1


if __name__ == "__main__":
    main()
