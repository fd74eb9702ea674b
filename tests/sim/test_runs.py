"""Runs of the simulator: crashes keep every promise, the faults come everywhere, and a seed is a run."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from duramen.sim.__main__ import main
from duramen.sim.machine.stages import FAULTS, POSSIBLE, cannot_fire
from duramen.sim.runs import ENOUGH, NodeRuns, NodeTotals, coverage, explain, fault_table, missing_faults, run_one
from duramen.sim.world import RunOutcome

SEEDS = range(1, 51)
CRASHES = 150
SEEDS_LONG = range(1, 301)
CRASHES_LONG = 1000

# What three hundred runs may miss; over ten thousand nothing may be missing, and `make sim` says so.
SELDOM: Mapping[str, tuple[str, ...]] = {
    "power loss": ("rewrite", "compaction", "truncate", "scrub"),
    "kill": ("rewrite", "compaction", "truncate"),
    "torn write": ("view", "sync", "roll", "rewrite", "compaction", "delete", "truncate", "scrub"),
    "short write": ("view", "sync", "roll", "rewrite", "compaction", "delete", "truncate", "scrub"),
    "read error": ("view", "compaction", "truncate"),
    "write error": ("view", "sync", "rewrite", "compaction", "delete", "truncate", "scrub"),
    "sync error": ("view", "append", "copy", "roll", "compaction", "truncate", "scrub"),
    "disk full": ("view", "sync", "truncate", "scrub"),
    "bit flip": (
        "view",
        "append",
        "sync",
        "copy",
        "roll",
        "rewrite",
        "compaction",
        "delete",
        "truncate",
        "scrub",
        "read",
    ),
    "cut": ("view", "append", "sync", "copy", "roll", "rewrite", "compaction", "delete", "truncate", "scrub"),
    "older copy": (
        "view",
        "append",
        "sync",
        "copy",
        "roll",
        "checkpoint",
        "rewrite",
        "compaction",
        "delete",
        "truncate",
        "scrub",
        "read",
    ),
}


def run(seeds: range) -> NodeTotals:
    found = NodeTotals()
    for seed in seeds:
        outcome = run_one(seed)
        assert not outcome.broken, explain(outcome)
        found.add(outcome)
    return found


@pytest.fixture(scope="module")
def totals() -> NodeTotals:
    return run(SEEDS_LONG)


def test_crashes_keep_every_promise() -> None:
    assert run(SEEDS).crashes >= CRASHES


@pytest.mark.long
def test_a_thousand_crashes_keep_every_promise(totals: NodeTotals) -> None:
    assert totals.crashes >= CRASHES_LONG


@pytest.mark.long
def test_every_fault_comes_in_every_stage_in_which_it_can(totals: NodeTotals) -> None:
    never = missing_faults(totals.counts)
    assert [(fault, stage) for fault, stage in never if stage not in SELDOM.get(fault, ())] == []


@pytest.mark.long
def test_what_cannot_come_never_does(totals: NodeTotals) -> None:
    came = [(fault, stage) for fault, stage in totals.counts if cannot_fire(fault, stage)]
    assert came == []


def test_what_never_came_is_told_aloud() -> None:
    everything = NodeTotals()
    everything.runs, everything.counts = ENOUGH, Counter(POSSIBLE)
    assert coverage(everything) == "None is zero: every fault came in every stage in which it can."
    del everything.counts["torn write", "rewrite"]
    assert missing_faults(everything.counts) == (("torn write", "rewrite"),)
    assert coverage(everything).startswith("NEVER CAME in 10,000 runs: torn write in rewrite")
    assert not NodeRuns(None, everything).well
    everything.runs = ENOUGH - 1
    assert coverage(everything) == "Not yet in 9,999 runs: torn write in rewrite."
    assert NodeRuns(None, everything).well


def test_a_seed_is_the_same_run_in_every_process(tmp_path: Path) -> None:
    traces = []
    for hash_seed in ("1", "2"):
        trace = tmp_path / hash_seed
        command = [sys.executable, "-m", "duramen.sim", "--seed", "11", "--trace", str(trace)]
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": hash_seed}, check=True, capture_output=True)
        traces.append(trace.read_bytes())
    assert traces[0] == traces[1]
    assert traces[0].count(b"\n") > 100


def test_a_broken_promise_is_told_with_how_to_see_it_again() -> None:
    told = explain(RunOutcome(42, "offset 7 is gone", ["1.0 before", "2.0 BROKEN"], 3, Counter()))
    assert "seed 42 broke a promise: offset 7 is gone" in told
    assert "2.0 BROKEN" in told
    assert "make sim SEED=42" in told


def test_the_table_has_a_line_for_each_fault() -> None:
    lines = fault_table(Counter({("kill", "append"): 12})).splitlines()
    assert len(lines) == 1 + len(FAULTS)
    assert next(line for line in lines if line.startswith("kill")).split()[1] == "12"


def test_the_command_runs_seeds_and_says_what_came_of_it() -> None:
    result = CliRunner().invoke(main, ["--seeds", "3-4", "-j", "1"])
    assert result.exit_code == 0
    assert "crashes in 2 runs" in result.output
    assert CliRunner().invoke(main, ["--seeds", "many"]).exit_code == 2
    assert "every promise kept" in CliRunner().invoke(main, ["--seed", "4"]).output
