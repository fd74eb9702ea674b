"""`duramen table`: the names of its commands."""

from collections.abc import Mapping
from typing import ClassVar

import click

from duramen.cli.lazy import LazyCommands

__all__ = ["command"]


class _TableCommands(LazyCommands):
    modules: ClassVar[Mapping[str, str]] = {
        name: f"duramen.cli.table.{name}" for name in ("enable", "disable", "list", "run", "status")
    }


@click.command("table", cls=_TableCommands)
def command() -> None:
    """Keep streams as Delta or Iceberg tables, with a Spark job that writes each offset exactly once."""
