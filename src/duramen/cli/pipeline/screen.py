"""A pipeline's status as text: a line for all of it, a table of its queries, a line for each error. Pure."""

from datetime import UTC, datetime
from typing import Final

from duramen.base.units import format_ms
from duramen.cli.tables import plain, table
from duramen.spark.pipelines.status import PipelineStatus, QueryStatus

__all__ = ["HEADER", "cells", "render"]

HEADER: Final = ("QUERY", "STATE", "BATCH", "ROWS", "ROWS/S", "LAG", "BATCH TIME", "STATE ROWS", "RESTARTS")
_LOST: Final = "its application ended without a report"


def render(status: PipelineStatus, width: int | None = None) -> str:
    """The whole screen; `width` is the longest line."""
    since = datetime.fromtimestamp(status.started_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    state = _LOST if status.state == "lost" else status.state
    head = f"Pipeline {status.pipeline} on {status.master} since {since}: {state}"
    rows = [cells(query) for query in status.queries]
    errors = [f"{query.query}: {plain(query.error)}{_id(query)}" for query in status.queries if query.error]
    return "\n".join([head, table(HEADER, rows, range(2, len(HEADER)), width), *errors])


def _id(query: QueryStatus) -> str:
    return f" [{query.error_id}]" if query.error_id else ""


def cells(query: QueryStatus) -> tuple[str, ...]:
    """The row of one query."""
    batch = query.batch
    if batch is None:
        return (query.query, query.state, "-", "-", "-", "-", "-", "-", str(query.restarts))
    return (
        query.query,
        query.state,
        str(batch.batch_id),
        str(batch.rows),
        f"{batch.rows_per_s:.0f}",
        "-" if batch.lag_records is None else str(batch.lag_records),
        format_ms(batch.batch_ms),
        str(batch.state_rows),
        str(query.restarts),
    )
