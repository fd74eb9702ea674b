"""Keyed streams measured, part by part: their views, a node with some streams, and one with many keys."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal

from duramen.bench.commands import console_for, show
from duramen.bench.keyed_views import measure_views
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.documents import targets_document, write_document
from duramen.bench.report.tables import targets_table
from duramen.bench.report.targets import TargetOutcome
from duramen.bench.scenarios.keyed import amounts, measure, steps
from duramen.bench.scenarios.keyed_files import FILED_STEPS, measure_filed
from duramen.bench.scenarios.keyed_node import NODE_STEPS, measure_node
from duramen.bench.scenarios.keyed_week import measure_week, week_steps

__all__ = ["KeyedPart", "measure_keyed"]

KeyedPart = Literal["views", "streams", "files", "node", "week"]

_MINUTE_S: Final = 60.0
_Part = tuple[int, Callable[[Path, LoadWorker], list[TargetOutcome]]]
"""How many jobs it has, and what does them."""


def measure_keyed(
    output: Path,
    *,
    parts: Sequence[KeyedPart],
    rounds: int,
    scale: float,
    keys: int,
    updates: int,
    minutes: float,
    peer: bool = False,
    as_json: bool = False,
) -> None:
    """Measure these parts; prints tables, or JSON, writes keyed.json.

    `keys`, `updates` and `minutes` are those of the parts that have many keys; `peer`: beside Apache Kafka.
    """
    console, until_s = console_for(as_json=as_json), time.time() + _MINUTE_S * minutes
    of = amounts(rounds, scale)
    outcomes, figures = measure_views(console, rounds=rounds, scale=scale) if "views" in parts else ([], [])
    of_parts: Mapping[KeyedPart, _Part] = {
        "streams": (steps(of), partial(measure, of=of)),
        "files": (FILED_STEPS, partial(measure_filed, keys=keys)),
        "node": (NODE_STEPS, partial(measure_node, keys=keys, updates=updates, until_s=until_s)),
        "week": (week_steps(peer=peer), partial(measure_week, keys=keys, updates=updates, peer=peer, until_s=until_s)),
    }
    wanted = [one for part, one in of_parts.items() if part in parts]
    with (
        LoadWorker(console, sum(count for count, _ in wanted)) as worker,
        tempfile.TemporaryDirectory(dir=output, prefix="data-", ignore_cleanup_errors=True) as directory,
    ):
        for _, work in wanted:
            outcomes += work(Path(directory).absolute(), worker)
    document = output / "keyed.json"
    settings = {"parts": list(parts), "rounds": rounds, "scale": scale, "keys": keys, "updates": updates}
    write_document(document, {"settings": settings, "figures": figures, "targets": targets_document(outcomes)})
    show(console, targets_table(outcomes), document, as_json=as_json)
