"""The command `duramen bench spark`: all Spark benchmarks, or the named ones, one after another."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from duramen.bench.commands import console_for, show
from duramen.bench.load.worker import LoadWorker
from duramen.bench.report.documents import targets_document, write_document
from duramen.bench.report.tables import targets_table
from duramen.bench.report.targets import TargetOutcome
from duramen.bench.spark import events
from duramen.bench.spark import reads as reading
from duramen.bench.spark import tables as translating
from duramen.bench.spark.events import measure_events
from duramen.bench.spark.memory import measure_memory
from duramen.bench.spark.reads import measure_reading
from duramen.bench.spark.tables import measure_translating

__all__ = ["PARTS", "measure_spark"]

PARTS: Final = ("reading", "events", "tables", "memory")
_RECORDS: Final = 5_000_000
_EVENTS_S: Final = 60.0


def measure_spark(
    output: Path, *, parts: Sequence[str], rounds: int, scale: float, minutes: float, peer: bool, as_json: bool = False
) -> None:
    """Measure the `parts`; prints a table, or JSON, writes spark.json. Raises what they raise."""
    console = console_for(as_json=as_json)
    counts = {
        "reading": reading.steps(rounds, len(reading.WORKS), peer=peer),
        "events": events.steps(rounds, peer=peer),
        "tables": translating.STEPS,
        "memory": 1,
    }
    outcomes: list[TargetOutcome] = []
    # Beside the results: the disk that is to be measured is the one that was named.
    with (
        LoadWorker(console, sum(counts[part] for part in parts)) as worker,
        tempfile.TemporaryDirectory(dir=output, prefix="data-", ignore_cleanup_errors=True) as data,
    ):
        directory = Path(data).absolute()
        for part in parts:
            place = directory / part
            place.mkdir()
            match part:
                case "reading":
                    records = max(1000, int(_RECORDS * scale))
                    outcomes += measure_reading(place, worker, records=records, rounds=rounds, peer=peer)
                case "events":
                    seconds = max(2.0, _EVENTS_S * scale)
                    outcomes += measure_events(place, worker, rounds=rounds, seconds=seconds, peer=peer)
                case "tables":
                    outcomes += measure_translating(place, worker, scale=scale)
                case _:
                    outcomes += measure_memory(place, worker, minutes=minutes)
    document = output / "spark.json"
    settings = {"rounds": rounds, "scale": scale, "minutes": minutes}
    write_document(document, {"settings": settings, "targets": targets_document(outcomes)})
    show(console, targets_table(outcomes), document, as_json=as_json)
