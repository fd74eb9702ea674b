"""Light queues: their views, then a node with queue spaces (`scenarios.queues`)."""

import tempfile
from pathlib import Path

from duramen.bench.commands import console_for, show
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.documents import targets_document, write_document
from duramen.bench.report.tables import targets_table
from duramen.bench.scenarios.queues import amounts, measure, steps

__all__ = ["measure_queues"]


def measure_queues(output: Path, *, scale: float, as_json: bool = False) -> None:
    """Measure all that queues are to be; prints a table, or JSON, writes queues.json."""
    console, of = console_for(as_json=as_json), amounts(scale)
    with (
        LoadWorker(console, steps()) as worker,
        tempfile.TemporaryDirectory(dir=output, prefix="data-", ignore_cleanup_errors=True) as directory,
    ):
        outcomes = measure(Path(directory).absolute(), worker, of)
    document = output / "queues.json"
    write_document(document, {"settings": {"scale": scale}, "targets": targets_document(outcomes)})
    show(console, targets_table(outcomes), document, as_json=as_json)
