"""Deleting things by their names, once it is confirmed."""

from collections.abc import Sequence

import click

from duramen.cli.confirmation import check_askable, confirm
from duramen.cli.output import JSON, print_json_line
from duramen.cli.server import NodeAddress
from duramen.cli.tables import plain
from duramen.client.http import path_of

__all__ = ["delete_all"]


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
