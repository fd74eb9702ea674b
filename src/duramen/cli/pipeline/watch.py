"""Displays a running pipeline: a live table on a terminal, lines of JSON elsewhere."""

import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
import msgspec

from duramen.cli.pipeline.screen import render
from duramen.cli.tables import plain
from duramen.spark.pipelines.status import PipelineStatus, QueryStatus

if TYPE_CHECKING:
    from rich.live import Live

__all__ = ["LineWatcher", "ScreenWatcher"]


class LineWatcher:
    """Writes one JSON document a line: each micro-batch, each change of a query's state, rows of console sinks."""

    def __init__(self) -> None:
        self._told: dict[str, QueryStatus] = {}
        self._writing = threading.Lock()  # rows come from threads of Spark's

    def status(self, status: PipelineStatus) -> None:
        """Print the changes."""
        for query in status.queries:
            if query != self._told.get(query.query):
                self._told[query.query] = query
                self._say({"time_ms": status.updated_at_ms, **msgspec.to_builtins(query)})

    def rows(self, query: str, batch_id: int, rows: list[Mapping[str, Any]]) -> None:
        """Say the rows."""
        self._say({"query": query, "batch_id": batch_id, "rows": rows})

    def _say(self, document: Mapping[str, Any]) -> None:
        with self._writing:
            click.echo(json.dumps(document, ensure_ascii=False, default=str))


class ScreenWatcher:
    """Keeps a table on the terminal; rows of console sinks go above it."""

    def __init__(self, live: "Live") -> None:
        self._live = live

    def status(self, status: PipelineStatus) -> None:
        """Show it."""
        from rich.text import Text

        width = self._live.console.width
        self._live.update(Text(render(status, width), no_wrap=True, overflow="crop"), refresh=True)

    def rows(self, query: str, batch_id: int, rows: list[Mapping[str, Any]]) -> None:
        """Show them."""
        from rich.text import Text

        lines = [plain(json.dumps(row, ensure_ascii=False, default=str)) for row in rows]
        self._live.console.print(Text("\n".join([f"{query}, micro-batch {batch_id}:", *lines])))
