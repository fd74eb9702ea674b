"""Spark's progress report of a query's last micro-batch, reduced to the displayed figures. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from duramen.base.errors import DuramenError
from duramen.spark.read.offsets import SourceOffsets

__all__ = ["OBSERVED", "BatchFigures", "figures_of"]

OBSERVED: Final = "duramen"
"""The observed metrics of a query whose rows are files; `rows` counts the records in them."""


class BatchFigures(Struct, frozen=True):
    """One micro-batch. `phases_ms` are Spark's own; `lag_records` is None if a source does not report its end."""

    batch_id: int
    rows: int
    rows_per_s: float
    batch_ms: int
    lag_records: int | None
    state_rows: int
    state_bytes: int
    phases_ms: Mapping[str, int]


def figures_of(progress: Mapping[str, Any]) -> BatchFigures:
    """The figures of a `StreamingQueryProgress`, as its JSON has it."""
    phases = {str(name): int(ms) for name, ms in (progress.get("durationMs") or {}).items()}
    lags = [_lag(source) for source in progress.get("sources") or ()]
    operators = progress.get("stateOperators") or ()
    batch_ms = phases.pop("triggerExecution", 0)
    rows, rows_per_s = int(progress.get("numInputRows") or 0), _number(progress.get("processedRowsPerSecond"))
    observed = (progress.get("observedMetrics") or {}).get(OBSERVED)
    if observed is not None:
        rows = int(observed.get("rows") or 0)
        rows_per_s = rows * 1000 / batch_ms if batch_ms else 0.0
    return BatchFigures(
        batch_id=int(progress.get("batchId", -1)),
        rows=rows,
        rows_per_s=rows_per_s,
        batch_ms=batch_ms,
        lag_records=None if None in lags else sum(lag for lag in lags if lag is not None),
        state_rows=sum(int(one.get("numRowsTotal") or 0) for one in operators),
        state_bytes=sum(int(one.get("memoryUsedBytes") or 0) for one in operators),
        phases_ms=phases,
    )


def _number(value: object) -> float:
    """A finite number; Spark writes NaN and infinity as texts."""
    return float(value) if isinstance(value, int | float) and value == value and abs(value) < 1e18 else 0.0  # noqa: PLR0124


def _lag(source: Mapping[str, Any]) -> int | None:
    end, latest = source.get("endOffset"), source.get("latestOffset")
    if not isinstance(end, dict) or not isinstance(latest, dict):
        return None
    try:
        at, newest = SourceOffsets.from_json(end).at, SourceOffsets.from_json(latest).at
    except (DuramenError, ValueError, TypeError, AttributeError):
        return None
    return sum(max(0, offset - at.get(partition, 0)) for partition, offset in newest.items())
