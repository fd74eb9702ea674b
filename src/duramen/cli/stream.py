"""`duramen stream`: streams made, shown, changed and deleted through a node's HTTP door."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import click

from duramen.base.units import format_bytes
from duramen.cli.output import JSON, format_option, print_json
from duramen.cli.server import Server, server_option
from duramen.cli.tables import table

__all__ = ["command"]

_STREAMS: Final = "/v1/streams"


def _path(name: str) -> str:
    return f"{_STREAMS}/{quote(name, safe='')}"


def _pairs(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for value in values:
        name, equals, content = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE")
        name, content = name.strip(), content.strip()
        if pairs.setdefault(name, content) != content:
            raise click.BadParameter(f"{name} is given twice, as {pairs[name]!r} and as {content!r}")
    return pairs


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


@click.group("stream")
def command() -> None:
    """Create, list, describe, change and delete streams."""


@command.command("create")
@click.argument("name")
@click.option(
    "--subject",
    "subjects",
    metavar="SUBJECT",
    multiple=True,
    help="Capture what is published on this NATS subject, with wildcards or without; may be repeated.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    metavar="NUMBER",
    help="Count of partitions [default: 1 with subjects, else num.partitions of the node]",
)
@click.option(
    "--config",
    "configs",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_pairs,
    help="A stream setting; docs/settings.md lists them.",
)
@server_option
def _create(
    name: str, subjects: Sequence[str], partitions: int | None, configs: dict[str, str], server: Server
) -> None:
    """Create the stream NAME; one that exists with the same definition is as good."""
    wish: dict[str, object] = {"name": name, "subjects": list(subjects), "config": configs}
    if partitions is not None:
        wish["partitions"] = partitions
    stream = server.post(_STREAMS, wish)
    count = len(stream["partitions"])
    bound = f", bound to {', '.join(stream['subjects'])}" if stream["subjects"] else ""
    what = "created" if stream["created"] else "exists already with this definition"
    click.echo(f"Stream {name} {what}: {count} partition{'s' if count > 1 else ''}{bound}.")
    for warning in stream["warnings"]:
        click.echo(f"Warning: {warning}.", err=True)


@command.command("list")
@click.option("--internal", is_flag=True, help="Show the broker's own streams too.")
@format_option
@server_option
def _list(internal: bool, format_: str, server: Server) -> None:
    """List the streams there are."""
    streams = [stream for stream in server.get(_STREAMS)["streams"] if internal or not stream["internal"]]
    if format_ == JSON:
        print_json(streams)
        return
    rows = [
        (
            stream["name"],
            str(len(stream["partitions"])),
            str(sum(part["high_watermark"] - part["start_offset"] for part in stream["partitions"])),
            format_bytes(sum(part["bytes"] for part in stream["partitions"])),
            stream["durability"],
            " ".join(stream["subjects"]),
        )
        for stream in sorted(streams, key=lambda one: str(one["name"]))
    ]
    if rows:
        click.echo(table(("STREAM", "PARTITIONS", "RECORDS", "SIZE", "DURABILITY", "SUBJECTS"), rows, right=(1, 2, 3)))
    else:
        click.echo("There are no streams yet; `duramen stream create NAME` makes one.", err=True)


@command.command("describe")
@click.argument("name")
@format_option
@server_option
def _describe(name: str, format_: str, server: Server) -> None:
    """Show the stream NAME: what it is, its partitions, and the gaps in what NATS brought it."""
    stream = server.get(_path(name))
    if format_ == JSON:
        print_json(stream)
        return
    click.echo(f"Stream      {stream['name']}")
    click.echo(f"Id          {stream['id']}")
    click.echo(f"Created     {_time(stream['created_at_ms'])}")
    click.echo(f"Durability  {stream['durability']}: {stream['durability_means']}")
    if stream["subjects"]:
        click.echo(f"Subjects    {' '.join(stream['subjects'])}")
    for key, value in sorted(stream["config"].items()):
        click.echo(f"Config      {key}={value}")
    rows = [
        (
            *(
                str(part[field])
                for field in ("partition", "leader_epoch", "start_offset", "high_watermark", "segments")
            ),
            format_bytes(part["bytes"]),
        )
        for part in stream["partitions"]
    ]
    click.echo()
    header = ("PARTITION", "LEADER EPOCH", "START OFFSET", "HIGH WATERMARK", "SEGMENTS", "SIZE")
    click.echo(table(header, rows, right=range(6)))
    if stream["nats_gaps"] is not None:
        _describe_gaps(stream["nats_gaps"])


def _describe_gaps(gaps: dict[str, Any]) -> None:
    count, seconds = gaps["count"], gaps["total_ms"] / 1000
    click.echo()
    if not gaps["recent"]:
        click.echo("No gaps: Duramen has listened to its subjects ever since it was created.")
        return
    click.echo(f"Gaps, in which nobody listened to its subjects: {count}, {seconds:.3f} s in all")
    rows = [
        (_time(gap["start_ms"]), _time(gap["end_ms"]) if gap["end_ms"] is not None else "goes on", gap["cause"])
        for gap in gaps["recent"]
    ]
    click.echo(table(("START", "END", "CAUSE"), rows))


@command.command("alter")
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), metavar="NUMBER", help="The new, larger count of partitions.")
@click.option("--config", "configs", metavar="KEY=VALUE", multiple=True, callback=_pairs, help="Set a stream setting.")
@click.option("--delete-config", "deleted", metavar="KEY", multiple=True, help="Set it back to its default.")
@server_option
def _alter(name: str, partitions: int | None, configs: dict[str, str], deleted: Sequence[str], server: Server) -> None:
    """Change the settings of the stream NAME, or give it more partitions."""
    if partitions is None and not configs and not deleted:
        raise click.UsageError("nothing to change; say --config, --delete-config or --partitions")
    if both := sorted(configs.keys() & set(deleted)):
        raise click.UsageError(f"{both[0]} is both set and deleted")
    change: dict[str, object] = {"config": {**configs, **dict.fromkeys(deleted)}}
    if partitions is not None:
        change["partitions"] = partitions
    server.patch(_path(name), change)
    click.echo(f"Stream {name} changed.")


@command.command("delete")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@server_option
def _delete(names: Sequence[str], yes: bool, server: Server) -> None:
    """Delete streams with all their records."""
    for name in names:
        server.get(_path(name))
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(names)} with all records?", abort=True)
    for name in names:
        server.delete(_path(name))
        click.echo(f"Stream {name} deleted.")
