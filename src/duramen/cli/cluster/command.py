"""`duramen cluster`: names of its commands."""

import importlib
from collections.abc import Mapping
from typing import Final

import click

__all__ = ["command"]

_COMMANDS: Final[Mapping[str, str]] = {"secret": "duramen.cli.cluster.secret"}


class _ClusterCommands(click.Group):
    """A group whose members are imported on demand: each module has its own as `command`."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        module = _COMMANDS.get(name)
        if module is None:
            return None
        found: click.Command = importlib.import_module(module).command
        return found


@click.command("cluster", cls=_ClusterCommands)
def command() -> None:
    """Prepare the nodes of a cluster. No version forms one yet: the secret is all there is."""
