"""`duramen table list`: the streams with tables."""

from collections.abc import Mapping
from typing import Any

import click

from duramen.base.catalogue.tables import NONE, STREAM_SETTINGS
from duramen.base.settings import config_text
from duramen.base.units import format_ms
from duramen.cli.output import JSON, format_option, print_json, print_table
from duramen.cli.server import NodeAddress, server_option

__all__ = ["command"]


@click.command("list")
@format_option
@server_option
def command(format_: str, server: NodeAddress) -> None:
    """List streams with tables, and the tables' locations."""
    tables = [_table(stream) for stream in server.listed("/v1/streams", "streams")]
    tables = sorted((one for one in tables if one["table.format"] != NONE), key=lambda one: one["stream"])
    if format_ == JSON:
        print_json(tables)
        return
    rows = [
        (
            one["stream"],
            one["table.format"],
            one["table.decode"],
            one["table.upsert.by"],
            format_ms(int(one["table.max.lag.ms"])),
            one["table.location"],
        )
        for one in tables
    ]
    if rows:
        print_table(("STREAM", "FORMAT", "DECODE", "UPSERT BY", "MAX LAG", "LOCATION"), rows, right=(4,))
    else:
        click.echo("No stream is a table yet; `duramen table enable STREAM` makes it one.", err=True)


def _table(stream: Mapping[str, Any]) -> dict[str, str]:
    config = {one.name: str(stream["config"].get(one.name, config_text(one.default))) for one in STREAM_SETTINGS}
    return {"stream": str(stream["name"]), **config}
