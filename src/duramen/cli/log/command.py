"""`duramen log`: the names of its commands."""

import sys
from collections.abc import Mapping
from typing import ClassVar

import click

from duramen.base.errors import DependencyMissing
from duramen.cli.lazy import LazyCommands

__all__ = ["command"]


class _LogCommands(LazyCommands):
    modules: ClassVar[Mapping[str, str]] = {
        "dump": "duramen.cli.log.dump",
        "stats": "duramen.cli.log.stats",
        "verify": "duramen.cli.log.verify",
        "salvage": "duramen.cli.log.salvage",
        "truncate": "duramen.cli.log.truncate",
    }

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if sys.platform == "win32" and name in self.modules:
            raise DependencyMissing(
                "a data directory is read with what Linux and macOS have: on Windows run `duramen log` in WSL"
                " (wsl --install)"
            )
        return super().get_command(context, name)


@click.command("log", cls=_LogCommands)
def command() -> None:
    """Inspect a data directory, and salvage a damaged one."""
