"""`python -m duramen.sim`: simulated crashes by the thousand, or one run again."""

import os
import sys

import click

from duramen.sim.running import explain, run_all, run_one

__all__ = ["main"]


def _seeds(text: str) -> range:
    first, dash, last = text.partition("-")
    try:
        return range(int(first), int(last) + 1) if dash else range(1, int(first) + 1)
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a number of seeds nor FROM-TO") from None


@click.command()
@click.option("--seeds", default="100", metavar="N|FROM-TO", help="How many runs, or from which seed to which.")
@click.option("--seed", type=int, metavar="N", help="Run this one only.")
@click.option("--trace", type=click.Path(), metavar="FILE", help="With --seed: write each event there; - for here.")
@click.option("-j", "--jobs", type=click.IntRange(1), help="How many runs at once; as many as there are cores.")
def main(seeds: str, seed: int | None, trace: str | None, jobs: int | None) -> None:
    """Run the storage, the broker and its groups on a disk that lies, and check what they promise."""
    if seed is not None:
        sys.exit(_run_again(seed, trace))
    sys.exit(0 if run_all(_seeds(seeds), jobs or os.cpu_count() or 1).well else 1)


def _run_again(seed: int, trace: str | None) -> int:
    if trace is None:
        outcome = run_one(seed)
    else:
        with click.open_file(trace, "w") as file:
            outcome = run_one(seed, lambda line: print(line, file=file))
    if outcome.broken:
        print(explain(outcome))
        return 1
    print(f"seed {seed}: every promise kept, {outcome.crashes} crashes")
    return 0


if __name__ == "__main__":
    main()
