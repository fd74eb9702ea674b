"""`duramen spark`: the names of its commands."""

from collections.abc import Mapping
from typing import ClassVar

import click

from duramen.cli.lazy import LazyCommands

__all__ = ["command"]


class _SparkCommands(LazyCommands):
    modules: ClassVar[Mapping[str, str]] = {"package": "duramen.cli.spark.package"}


@click.command("spark", cls=_SparkCommands)
def command() -> None:
    """Prepare Duramen for a Spark cluster."""
