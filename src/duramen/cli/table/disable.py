"""`duramen table disable`: ends a stream's table; its files stay."""

import click

from duramen.base.catalogue.tables import KEPT_OFFSETS, NONE, STREAM_SETTINGS
from duramen.base.errors import StreamNoTable
from duramen.cli.names import StreamName
from duramen.cli.output import JSON, format_option, print_json
from duramen.cli.server import NodeAddress, server_option
from duramen.client.http import path_of

__all__ = ["command"]


@click.command("disable")
@click.argument("stream", type=StreamName())
@format_option
@server_option
def command(stream: str, format_: str, server: NodeAddress) -> None:
    """Stop keeping STREAM as a table. Its files stay; enabled again, the table continues where it ended."""
    path = path_of("streams", stream)
    config = server.get(path)["config"]
    if config.get("table.format", NONE) == NONE:
        raise StreamNoTable(f"stream {stream} is not a table, so nothing was changed")
    names = [*(one.name for one in STREAM_SETTINGS), KEPT_OFFSETS]
    changed = server.patch(path, {"config": {name: None for name in names if name in config}})
    if format_ == JSON:
        print_json(changed)
    else:
        click.echo(f"Stream {stream} is no longer a table; its files stay at {config['table.location']}.")
