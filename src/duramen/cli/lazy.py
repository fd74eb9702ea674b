"""Groups of commands with modules imported on demand: imports take most of the time of a short command."""

import importlib
from collections.abc import Mapping
from typing import ClassVar

import click

__all__ = ["LazyCommands"]


class LazyCommands(click.Group):
    """A group whose members are imported on demand: each module has its own as `command`."""

    modules: ClassVar[Mapping[str, str]] = {}
    """The module of each command, by its name."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(self.modules)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        module = self.modules.get(name)
        if module is None:
            return None
        found: click.Command = importlib.import_module(module).command
        return found
