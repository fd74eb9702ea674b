"""Results as JSON: the measurement, its machine and time, and figures that tables omit."""

import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from duramen import __version__
from duramen.bench.latency import LatencyCell
from duramen.bench.load.percentiles import Latencies
from duramen.bench.report.targets import TargetOutcome
from duramen.bench.throughput import ThroughputCell

__all__ = ["latency_document", "machine", "targets_document", "throughput_document", "write_document"]


def machine() -> dict[str, object]:
    """What the figures were measured on, and with which version."""
    return {
        "duramen": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _latencies(found: Latencies) -> dict[str, object]:
    return {
        "samples": found.count,
        "percentiles_ms": {f"{point:g}": at for point, at in found.carried_ms().items()},
        "max_ms": found.max_ms,
    }


def latency_document(cells: Sequence[LatencyCell]) -> list[dict[str, object]]:
    """One object a cell: merged percentiles as far as the sample carries them, the maximum, and those of each run."""
    return [
        {
            "name": cell.name,
            "door": cell.door,
            "value_bytes": cell.value_bytes,
            **_latencies(cell.merged),
            "runs": [_latencies(run) for run in cell.runs],
        }
        for cell in cells
    ]


def throughput_document(cells: Sequence[ThroughputCell]) -> list[dict[str, object]]:
    """One object a cell: seconds of every run."""
    return [
        {
            "name": cell.name,
            "door": cell.door,
            "value_bytes": cell.value_bytes,
            "messages": cell.messages,
            "publish_s": cell.publish_s,
            "subscribe_s": cell.subscribe_s,
        }
        for cell in cells
    ]


def targets_document(outcomes: Sequence[TargetOutcome]) -> list[dict[str, object]]:
    """One object a target; `met` is null where it was not measured."""
    return [dict(outcome._asdict()) for outcome in outcomes]


def write_document(path: Path, document: Mapping[str, object]) -> None:
    """Write `document` with what it was measured on."""
    path.write_text(json.dumps({"machine": machine(), **document}, indent=2) + "\n", encoding="utf-8")
