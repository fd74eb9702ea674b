"""`duramen cluster`: the names of its commands."""

from collections.abc import Mapping
from typing import ClassVar

import click

from duramen.cli.lazy import LazyCommands

__all__ = ["command"]


class _ClusterCommands(LazyCommands):
    modules: ClassVar[Mapping[str, str]] = {
        name: f"duramen.cli.cluster.{name}"
        for name in ("status", "add", "drain", "remove", "reassign", "rebalance", "elect", "upgrade", "secret")
    }


@click.command("cluster", cls=_ClusterCommands)
def command() -> None:
    """Show and change the cluster. Every node accepts every command."""
