"""`duramen pipeline`: the names of its commands."""

from collections.abc import Mapping
from typing import ClassVar

import click

from duramen.cli.lazy import LazyCommands

__all__ = ["command"]


class _PipelineCommands(LazyCommands):
    modules: ClassVar[Mapping[str, str]] = {
        name: f"duramen.cli.pipeline.{name}" for name in ("validate", "run", "status", "explain")
    }


@click.command("pipeline", cls=_PipelineCommands)
def command() -> None:
    """Run pipelines from files: streams through SQL into streams and tables, with Spark."""
