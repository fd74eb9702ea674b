"""The hunt for planted bugs: for each, the first seed whose run sees a promise broken that is kept without the bug.

`python -m tests.sim.hunt` looks for all of them, or for those it is given by name, on all cores, and writes what it
found to seeds.json, whose seeds `make test` runs again.
"""

import json
import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.sim.bugs.every import BUGS
from tests.sim.planted import broken_by, planted

from duramen.sim.runs import run_one

__all__ = ["SEEDS", "first_seed", "hunt", "known_seeds"]

SEEDS: Final = range(1, 2001)

_KNOWN: Final = Path(__file__).with_name("seeds.json")


def _broken_by(name: str, seed: int) -> str:
    """The promise that the run of a seed sees broken with the bug of that name planted; empty where all are kept."""
    with planted(next(bug for bug in BUGS if bug.name == name)):
        return broken_by(name, run_one(seed).broken)


def first_seed(name: str, seeds: Iterable[int] = SEEDS) -> tuple[str, int, str]:
    """(The bug, the first of the seeds that finds it, the promise it breaks); seed 0 where none does."""
    for seed in seeds:
        broken = _broken_by(name, seed)
        if broken and not run_one(seed).broken:
            return name, seed, broken
    return name, 0, ""


def hunt(names: Iterable[str]) -> Iterator[tuple[str, int, str]]:
    """`first_seed` of each bug, as they are found."""
    with multiprocessing.get_context("forkserver").Pool(os.cpu_count()) as pool:
        yield from pool.imap_unordered(first_seed, names)


def known_seeds() -> dict[str, int]:
    """The seed that finds each bug, as the last hunt found it."""
    seeds: dict[str, int] = json.loads(_KNOWN.read_text())
    return seeds


def main(names: list[str]) -> int:
    """Hunt and write down; 1 where a bug was not found."""
    seeds = known_seeds() if _KNOWN.exists() else {}
    missed = 0
    for name, seed, broken in hunt(names or [bug.name for bug in BUGS]):
        print(f"{name}: {f'seed {seed}: {broken}' if seed else f'not found by {len(SEEDS)} seeds'}", flush=True)
        if seed:
            seeds[name] = seed
        else:
            missed += 1
    _KNOWN.write_text(json.dumps(dict(sorted(seeds.items())), indent=2) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
