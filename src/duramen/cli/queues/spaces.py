"""`duramen queue space`: creates, shows and deletes queue spaces through a node's HTTP door."""

from collections.abc import Sequence
from typing import Final

import click

from duramen.base.units import format_bytes
from duramen.cli.confirmation import delete_all, yes_option
from duramen.cli.names import StreamName
from duramen.cli.output import JSON, format_option, print_json, print_table
from duramen.cli.server import NodeAddress, server_option
from duramen.cli.streams.pairs import pairs
from duramen.client.http import path_of

__all__ = ["spaces"]

_SPACES: Final = "/v1/spaces"


@click.group("space", short_help="Create, list, describe and delete queue spaces.")
def spaces() -> None:
    """Create, list, describe and delete queue spaces. A space is a Kafka topic whose partitions are its shards."""


def _shards(count: int) -> str:
    return f"{count} shard{'' if count == 1 else 's'}"


@spaces.command("create")
@click.argument("name")
@click.option(
    "--shards",
    type=click.IntRange(1, 1000),
    metavar="NUMBER",
    default=16,
    show_default=True,
    help="The number of shards; it cannot change later.",
)
@click.option(
    "--config", "configs", metavar="KEY=VALUE", multiple=True, callback=pairs,
    help="A stream setting; docs/settings.md lists them.",
)  # fmt: skip
@format_option
@server_option
def _create(name: str, shards: int, configs: dict[str, str], format_: str, server: NodeAddress) -> None:
    """Create the queue space NAME. If it exists with the same definition, this succeeds too."""
    space = server.post(_SPACES, {"name": name, "shards": shards, "config": configs})
    if format_ == JSON:
        print_json(space)
    else:
        what = "created" if space["created"] else "already exists with this definition"
        click.echo(f"Queue space {name} {what}: {_shards(space['shards'])}.")


@spaces.command("list")
@format_option
@server_option
def _list(format_: str, server: NodeAddress) -> None:
    """List queue spaces."""
    spaces = list(server.listed(_SPACES, "spaces"))
    if format_ == JSON:
        print_json(spaces)
    elif spaces:
        rows = [(space["name"], str(space["shards"]), format_bytes(space["bytes"])) for space in spaces]
        print_table(("SPACE", "SHARDS", "LOG"), rows, right=(1, 2))
    else:
        click.echo("There are no queue spaces yet; `duramen queue space create NAME` creates one.", err=True)


@spaces.command("describe")
@click.argument("name", type=StreamName())
@format_option
@server_option
def _describe(name: str, format_: str, server: NodeAddress) -> None:
    """Show the queue space NAME."""
    space = server.get(path_of("spaces", name))
    if format_ == JSON:
        print_json(space)
        return
    click.echo(f"Queue space {space['name']}: {_shards(space['shards'])}, log {format_bytes(space['bytes'])}")
    for key, value in sorted(space["config"].items()):
        click.echo(f"  {key}={value}")


@spaces.command("delete")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, type=StreamName())
@yes_option
@format_option
@server_option
def _delete(names: Sequence[str], yes: bool, format_: str, server: NodeAddress) -> None:
    """Delete queue spaces with all their queues. JSON output is one line for each deleted space."""
    delete_all(server, "space", names, "queues", yes=yes, format_=format_)
