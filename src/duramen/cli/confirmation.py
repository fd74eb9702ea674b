"""Asks for confirmation before something is deleted."""

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from duramen.cli.output import JSON, print_json_line
from duramen.cli.server import NodeAddress
from duramen.cli.tables import plain
from duramen.client.http import path_of

__all__ = ["check_askable", "confirm", "delete_all", "yes_option"]

_F = TypeVar("_F", bound=Callable[..., object])


def yes_option(function: _F) -> _F:
    """The option `--yes`, which the command gets as `yes` and gives to `confirm`."""
    return click.option("--yes", is_flag=True, help="Do not ask for confirmation.")(function)


def check_askable(*, yes: bool) -> None:
    """Raise a usage error if there is no answer, and no terminal to ask for one."""
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("confirmation is required, but standard input is no terminal; give --yes")


def confirm(question: str, *, yes: bool) -> None:
    """Continue if `yes`, or if the user at the terminal confirms; otherwise the command ends with 1 without an effect.

    Raises a usage error if there is no terminal.
    """
    check_askable(yes=yes)
    if not yes and not click.confirm(question, err=True):
        click.echo("Nothing was done.", err=True)
        raise click.exceptions.Exit(1)


def delete_all(server: NodeAddress, noun: str, names: Sequence[str], what: str, *, yes: bool, format_: str) -> None:
    """Delete streams or groups (`noun`) with their content (`what`); nothing if one of them does not exist."""
    check_askable(yes=yes)
    paths = [path_of(f"{noun}s", name) for name in names]
    for path in paths:
        server.get(path)
    confirm(f"Delete {', '.join(map(plain, names))} with all {what}?", yes=yes)
    for name, path in zip(names, paths, strict=True):
        server.delete(path)
        if format_ == JSON:
            print_json_line({"deleted": name})
        else:
            click.echo(f"{noun.capitalize()} {plain(name)} deleted.")
