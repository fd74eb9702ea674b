"""Light queues: their views, a node with queue spaces (`scenarios.queues`), and single rows beside peers."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from duramen.bench.commands import console_for, show
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.documents import targets_document, write_document
from duramen.bench.report.tables import targets_table
from duramen.bench.report.targets import TargetOutcome
from duramen.bench.scenarios.queue_peers import QueuePeer, measure_peers, peer_steps
from duramen.bench.scenarios.queues import ENTRIES_EACH, amounts, measure, measure_batches, steps

__all__ = ["QueuePart", "measure_queues"]

QueuePart = Literal["node", "batches", "rows"]

_MINUTE_S: Final = 60.0


def measure_queues(
    output: Path,
    *,
    parts: Sequence[QueuePart],
    peers: Sequence[QueuePeer],
    scale: float,
    minutes: float,
    as_json: bool = False,
) -> None:
    """Measure these parts, `rows` for so many minutes; prints a table, or JSON, writes queues.json."""
    console, of, outcomes = console_for(as_json=as_json), amounts(scale), list[TargetOutcome]()
    jobs = sum(steps(alone=part == "batches") for part in parts if part != "rows")
    jobs += peer_steps(peers) if "rows" in parts else 0
    with (
        LoadWorker(console, jobs) as worker,
        tempfile.TemporaryDirectory(dir=output, prefix="data-", ignore_cleanup_errors=True) as directory,
    ):
        place = Path(directory).absolute()
        if "node" in parts:
            outcomes += measure(place, worker, of)
        if "batches" in parts:
            outcomes += measure_batches(place, worker, of)
        if "rows" in parts:
            outcomes += measure_peers(
                place, worker, peers=peers, queues=of.queues, rows=of.queues * ENTRIES_EACH,
                until_s=time.time() + _MINUTE_S * minutes,
            )  # fmt: skip
    document = output / "queues.json"
    settings = {"parts": list(parts), "peers": list(peers), "scale": scale, "minutes": minutes}
    write_document(document, {"settings": settings, "targets": targets_document(outcomes)})
    show(console, targets_table(outcomes), document, as_json=as_json)
