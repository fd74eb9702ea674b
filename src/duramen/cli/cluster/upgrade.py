"""`duramen cluster upgrade`: raises the feature level of the cluster."""

import click

from duramen.cli.confirmation import confirm, yes_option
from duramen.cli.output import JSON, format_option, print_json, print_table
from duramen.cli.server import NodeAddress, server_option
from duramen.cli.tables import plain

__all__ = ["command"]

_PATH = "/v1/cluster/feature-level"


@click.command("upgrade")
@click.option("--dry-run", is_flag=True, help="Only show what changes.")
@yes_option
@format_option
@server_option
def command(dry_run: bool, yes: bool, format_: str, server: NodeAddress) -> None:
    """Raise the feature level to the highest that all nodes know, once all run a new version.

    Nodes of an older version cannot take part after that, and the level never goes down.
    """
    found = server.get(_PATH)
    level, highest = found["level"], found["highest_level"]
    if format_ == JSON:
        print_json(found)
    else:
        _print(level, highest, found["older_nodes"], [tuple(change.values()) for change in found["changes"]])
    if level < highest and not dry_run:
        confirm(f"Raise the feature level to {highest}? It cannot be lowered later.", yes=yes)
        server.post(_PATH, {"level": highest})
        click.echo(f"The feature level is {highest}.", err=format_ == JSON)


def _print(level: int, highest: int, older: list[int], changes: list[tuple[str, str, int, int]]) -> None:
    if level == highest:
        click.echo(f"The feature level is {level}, the highest that all nodes support.")
    else:
        click.echo(f"The feature level is {level}; all nodes support {highest}.")
    if older:
        click.echo(f"Nodes of an older version: {', '.join(map(str, older))}.")
    if changes:
        click.echo("These streams do not set the config, and its default changes:")
        rows = [(plain(stream), plain(config), str(before), str(after)) for stream, config, before, after in changes]
        print_table(("STREAM", "CONFIG", "NOW", "THEN"), rows, right=(2, 3))
