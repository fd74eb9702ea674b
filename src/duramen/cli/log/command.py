"""`duramen log`: names of its commands."""

import importlib
import sys
from collections.abc import Mapping
from typing import Final

import click

from duramen.base.errors import DependencyMissing

__all__ = ["command"]

_COMMANDS: Final[Mapping[str, str]] = {
    "dump": "duramen.cli.log.dump",
    "stats": "duramen.cli.log.stats",
    "verify": "duramen.cli.log.verify",
    "salvage": "duramen.cli.log.salvage",
    "truncate": "duramen.cli.log.truncate",
}


class _LogCommands(click.Group):
    """A group whose members are imported on demand: each module has its own as `command`."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        module = _COMMANDS.get(name)
        if module is None:
            return None
        if sys.platform == "win32":
            raise DependencyMissing(
                "a data directory is read with what Linux and macOS have: on Windows run `duramen log` in WSL"
                " (wsl --install)"
            )
        found: click.Command = importlib.import_module(module).command
        return found


@click.command("log", cls=_LogCommands)
def command() -> None:
    """Look into a data directory; save what is left of a damaged one."""
