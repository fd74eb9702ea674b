"""`duramen snapshot`: keyed streams as they are or were, each key once."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import click

from duramen.base.units import format_bytes
from duramen.cli.names import StreamName
from duramen.cli.output import JSON, format_option, print_json, print_json_line, print_table
from duramen.cli.server import NodeAddress, server_option
from duramen.client.http import path_of

__all__ = ["command"]

_PAGE_RECORDS = 10_000


class _Vector(click.ParamType[dict[int, int]]):
    """PARTITION:OFFSET with commas between them."""

    name = "vector"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[int, int]:
        try:
            pairs = [entry.split(":") for entry in value.split(",")]
            found = {int(partition): int(offset) for partition, offset in pairs}
        except ValueError:
            found = {}
        if not found or min(*found, *found.values()) < 0:
            self.fail(f"{value!r} is not PARTITION:OFFSET, with commas between several", param, ctx)
        return found


@click.group("snapshot")
def command() -> None:
    """Read keyed streams as snapshots: each key once, at its newest record."""


def _opened(server: NodeAddress, name: str) -> list[dict[str, Any]]:
    partitions: list[dict[str, Any]] = server.get(path_of("streams", name) + "/snapshot")["partitions"]
    return partitions


def _text(at: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in at.items())


@command.command("describe")
@click.argument("name", metavar="STREAM", type=StreamName())
@format_option
@server_option
def _describe(name: str, format_: str, server: NodeAddress) -> None:
    """Show the newest snapshot of STREAM, which ones can still be read, and what its view costs."""
    partitions = _opened(server, name)
    views = {part["partition"]: part["view"] or {} for part in server.get(path_of("streams", name))["partitions"]}
    for part in partitions:
        part["view"] = views.get(part["partition"], {})
    vector = _text({part["partition"]: part["at"] for part in partitions})
    if format_ == JSON:
        print_json({"stream": name, "at": vector, "partitions": partitions})
        return
    click.echo(f"The newest snapshot of {name} is {vector}.")
    click.echo()
    rows = [
        (
            *(str(part[field]) for field in ("partition", "oldest", "at", "horizon", "high_watermark")),
            str(part["view"].get("keys", "-")),
            format_bytes(part["view"].get("memory_bytes", 0)),
            part["view"].get("problem", ""),
        )
        for part in partitions
    ]
    header = ("PARTITION", "OLDEST", "NEWEST", "CHANGES SINCE", "HIGH WATERMARK", "KEYS", "MEMORY", "PROBLEM")
    print_table(header, rows, right=range(7))


@command.command("read")
@click.argument("name", metavar="STREAM", type=StreamName())
@click.option(
    "--at", type=_Vector(), metavar="VECTOR", help="The snapshot, as `describe` shows it  [default: the newest]"
)
@click.option("--since", type=_Vector(), metavar="VECTOR", help="Only what became visible since this snapshot.")
@server_option
def _read(name: str, at: dict[int, int] | None, since: dict[int, int] | None, server: NodeAddress) -> None:
    """Print the records of a snapshot of STREAM, one JSON object a line; deleted keys have the value null."""
    if at is None:
        at = {part["partition"]: part["at"] for part in _opened(server, name)}
    for partition, offset in at.items():
        for record in _records(server, name, partition, offset, (since or {}).get(partition)):
            print_json_line(record)


def _records(server: NodeAddress, name: str, partition: int, at: int, since: int | None) -> Iterator[dict[str, Any]]:
    asked = {"partition": partition, "at": at, "limit": _PAGE_RECORDS, "offset": 0}
    if since is not None:
        asked["since"] = since
    while asked["offset"] is not None:
        page = server.get(f"{path_of('streams', name)}/snapshot/records?{urlencode(asked)}")
        yield from page["records"]
        asked["offset"] = page["next"]
