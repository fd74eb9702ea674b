"""The commands of `duramen bench` about nodes: many logs, large logs, slow disks, cold reads, clusters."""

import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Final

from duramen.bench.commands import console_for, show
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.documents import targets_document, write_document
from duramen.bench.report.tables import targets_table
from duramen.bench.report.targets import TargetOutcome
from duramen.bench.scenarios import (
    cold_reads,
    compaction,
    crowded,
    failover,
    partitions,
    pauses,
    requests,
    slow_disk,
    topology,
)
from duramen.bench.scenarios import growth as growing
from duramen.bench.scenarios import startup as starting
from duramen.bench.scenarios.effort import scaled

__all__ = ["measure_growing", "measure_pauses", "measure_requests", "measure_storage"]

_SCENARIOS: Final[Mapping[str, ModuleType]] = {
    "starting": starting, "crowded": crowded, "slow-disk": slow_disk, "cold-reads": cold_reads,
    "failover": failover, "partitions": partitions, "topology": topology,
}  # fmt: skip


def measure_storage(name: str, output: Path, *, rounds: int, scale: float, as_json: bool = False) -> None:
    """Run the scenario of that name; prints a table, or JSON, writes NAME.json."""
    settings = {"rounds": rounds, "scale": scale}
    if name == "compaction":
        effort = scaled(rounds, scale)
        measure, steps = partial(compaction.measure, effort=effort), compaction.steps(effort)
    else:
        scenario = _SCENARIOS[name]
        measure, steps = partial(scenario.measure, rounds=rounds, scale=scale), scenario.steps(rounds)
    _run(name, output, measure, steps, settings, as_json=as_json)


def measure_growing(
    output: Path, *, rounds: int, scale: float, joined: Path | None = None, as_json: bool = False
) -> None:
    """Measure a node that joins, its data in `joined` where that is given; prints a table, or JSON, and writes it."""
    settings = {"rounds": rounds, "scale": scale, "joined": str(joined or "")}
    with ExitStack() as stack:
        place = joined and Path(stack.enter_context(_data_in(joined))).absolute()
        measure = partial(growing.measure, rounds=rounds, scale=scale, joined=place)
        _run("growing", output, measure, growing.steps(rounds), settings, as_json=as_json)


def measure_requests(output: Path, *, rounds: int, scale: float, klite: Path | None, as_json: bool = False) -> None:
    """Measure single records, beside `klite` where that is given; prints a table, or JSON, writes requests.json."""
    measure = partial(requests.measure, rounds=rounds, scale=scale, klite=klite)
    settings = {"rounds": rounds, "scale": scale, "klite": str(klite or "")}
    _run("requests", output, measure, requests.steps(rounds, klite=klite is not None), settings, as_json=as_json)


def measure_pauses(output: Path, *, duration_s: float, as_json: bool = False) -> None:
    """Measure pauses under load; prints a table, or JSON, writes pauses.json."""
    measure = partial(pauses.measure, duration_s=duration_s)
    _run("pauses", output, measure, pauses.steps(), {"duration_s": duration_s}, as_json=as_json)


def _data_in(directory: Path) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(dir=directory, prefix="data-", ignore_cleanup_errors=True)


def _run(
    name: str,
    output: Path,
    measure: Callable[[Path, LoadWorker], list[TargetOutcome]],
    steps: int,
    settings: Mapping[str, object],
    *,
    as_json: bool,
) -> None:
    console = console_for(as_json=as_json)
    # Beside the results: the disk that is to be measured is the one that was named.
    with LoadWorker(console, steps) as worker, _data_in(output) as directory:
        outcomes = measure(Path(directory).absolute(), worker)
    document = output / f"{name}.json"
    write_document(document, {"settings": settings, "targets": targets_document(outcomes)})
    show(console, targets_table(outcomes), document, as_json=as_json)
