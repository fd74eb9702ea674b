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
    """Raise a usage error where the answer is not given, and nobody is there to give one."""
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("confirmation is required, but standard input is no terminal; give --yes")


def confirm(question: str, *, yes: bool) -> None:
    """Go on if `yes`, or if whoever sits at the terminal says so; else the command ends with 1, nothing done.

    Raises a usage error where nobody can be asked.
    """
    check_askable(yes=yes)
    if not yes and not click.confirm(question, err=True):
        click.echo("Nothing was done.", err=True)
        raise click.exceptions.Exit(1)


def delete_all(server: NodeAddress, noun: str, names: Sequence[str], what: str, *, yes: bool, format_: str) -> None:
    """Delete streams or groups, as `noun` says, with `what` they have; nothing where one of them is not there."""
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
