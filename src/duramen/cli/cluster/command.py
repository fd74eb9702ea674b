"""`duramen cluster`: names of its commands."""

from collections.abc import Mapping
from typing import ClassVar

import click

from duramen.cli.lazy import LazyCommands

__all__ = ["command"]


class _ClusterCommands(LazyCommands):
    modules: ClassVar[Mapping[str, str]] = {"secret": "duramen.cli.cluster.secret"}


@click.command("cluster", cls=_ClusterCommands)
def command() -> None:
    """Prepare the nodes of a cluster. No version forms one yet: the secret is all there is."""
