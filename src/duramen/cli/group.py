"""`duramen group`: shows, resets and deletes consumer groups through a node's HTTP door."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from duramen.base.positions import POSITION_FORMS, Since, parse_position
from duramen.base.units import format_ms
from duramen.cli.confirmation import check_askable, confirm, delete_all, yes_option
from duramen.cli.names import GroupName, StreamName
from duramen.cli.output import JSON, format_option, print_json, print_table
from duramen.cli.server import NodeAddress, server_option
from duramen.cli.streams.description import lag_text, missing_groups
from duramen.cli.tables import plain, table, terminal_width
from duramen.client.http import path_of

__all__ = ["command"]

_GROUPS: Final = "/v1/groups"


def _position(_: click.Context, __: click.Parameter, value: str) -> str:
    """The position as the node gets it: a relative time becomes absolute, so that the confirmed request is executed."""
    try:
        position = parse_position(value, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return f"@{position.timestamp_ms:09d}" if isinstance(position, Since) else value


@click.group("group")
def command() -> None:
    """List, describe, reset and delete consumer groups."""


@command.command("list")
@format_option
@server_option
def _list(format_: str, server: NodeAddress) -> None:
    """List consumer groups. Exits with 1 and names the reason if groups may be missing."""
    pages = list(server.pages(_GROUPS))
    _print_groups([group for page in pages for group in page["groups"]], format_, missing := missing_groups(pages))
    if missing:
        click.echo(f"Groups may be missing: {missing}.", err=True)
        raise click.exceptions.Exit(1)


def _print_groups(groups: Sequence[Mapping[str, Any]], format_: str, missing: str) -> None:
    if format_ == JSON:
        print_json(groups)
        return
    rows = [
        (
            group["id"],
            group["kind"],
            group["state"],
            group["protocol"] or "-",
            str(group["members"]),
            _number(group["lag_records"]),
        )
        for group in groups
    ]
    if rows:
        print_table(("GROUP", "KIND", "STATE", "PROTOCOL", "MEMBERS", "LAG RECORDS"), rows, right=(4, 5))
    elif not missing:
        click.echo("There are no consumer groups yet; a Kafka client with a group.id creates one.", err=True)


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


@command.command("describe")
@click.argument("group", type=GroupName())
@format_option
@server_option
def _describe(group: str, format_: str, server: NodeAddress) -> None:
    """Show the consumer group GROUP: its members, its offsets, and its lag in records and time.

    Of a share group, START is the first record that it is not done with.
    """
    found = server.get(path_of("groups", group))
    if format_ == JSON:
        print_json(found)
        return
    lag_records, lag_time = lag_text(found["offsets"])
    click.echo(f"Group       {plain(found['id'])}")
    click.echo(f"Kind        {found['kind']}")
    click.echo(f"State       {found['state']}")
    click.echo(f"Protocol    {plain(found['protocol'] or '-')}, generation {found['generation']}")
    click.echo(f"Lag         {lag_records} records, {lag_time}")
    click.echo()
    _print_members(found["members"])
    click.echo()
    _print_offsets(found["offsets"], found["kind"])


def _print_members(members: Sequence[Mapping[str, Any]]) -> None:
    if not members:
        click.echo("No members.")
        return
    rows = [
        (
            member["member_id"],
            member["client_id"],
            member["host"],
            " ".join(f"{part['stream']}:{part['partition']}" for part in member["partitions"]) or "-",
        )
        for member in members
    ]
    print_table(("MEMBER", "CLIENT", "HOST", "PARTITIONS"), rows)


def _print_offsets(offsets: Sequence[Mapping[str, Any]], kind: str) -> None:
    shared = kind == "share"
    if not offsets:
        click.echo("No partitions." if shared else "No committed offsets.")
        return
    fields = [*([] if shared else ["committed_offset"]), "start_offset", "end_offset", "lag_records"]
    columns = [*([] if shared else ["COMMITTED"]), "START", "END", "LAG RECORDS", "LAG TIME"]
    rows = [
        (
            offset["stream"],
            str(offset["partition"]),
            *(_number(offset[field]) for field in fields),
            "-" if offset["lag_seconds"] is None else format_ms(1000 * offset["lag_seconds"]),
        )
        for offset in offsets
    ]
    print_table(("STREAM", "PARTITION", *columns), rows, right=range(1, 2 + len(columns)))


@command.command("reset")
@click.argument("group", type=GroupName())
@click.option("--to", metavar=POSITION_FORMS, required=True, callback=_position,
              help="The new position: -N is the last N records of each partition, @TIME is ISO 8601, milliseconds "
                   "since 1970, or relative such as @-30s.")  # fmt: skip
@click.option("--stream", "streams", metavar="NAME", multiple=True, type=StreamName(),
              help="Only this stream, even if the group has no offsets in it yet; may be repeated. [default: all in "
              "which it has offsets]")  # fmt: skip
@click.option("--partition", type=click.IntRange(0), metavar="NUMBER", help="Only this partition.")
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@yes_option
@format_option
@server_option
def _reset(
    group: str,
    to: str,
    streams: Sequence[str],
    partition: int | None,
    dry_run: bool,
    yes: bool,
    format_: str,
    server: NodeAddress,
) -> None:
    """Reset the committed offsets of the consumer group GROUP. It must have no members: stop its consumers first.

    A share group starts at the new offsets, and its acknowledgements after them are discarded.
    """
    check_askable(yes=yes or dry_run)
    body: dict[str, object] = {"to": to}
    if streams:
        body["streams"] = list(streams)
    if partition is not None:
        body["partition"] = partition
    path = f"{path_of('groups', group)}/offsets"
    if dry_run or not yes:
        planned = server.post(path, body | {"dry_run": True})["offsets"]
        if dry_run or not planned:
            _print_reset(planned, format_)
            return
        _print_plan(planned)
        confirm(f"Set these {len(planned)} offsets of {group}?", yes=yes)
    _print_reset(server.post(path, body | {"dry_run": False})["offsets"], format_)


def _plan_rows(offsets: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    return [
        (offset["stream"], str(offset["partition"]), _number(offset["before"]), str(offset["after"]))
        for offset in offsets
    ]


_PLAN_HEADER: Final = ("STREAM", "PARTITION", "BEFORE", "AFTER")


def _print_plan(offsets: Sequence[Mapping[str, Any]]) -> None:
    click.echo(table(_PLAN_HEADER, _plan_rows(offsets), range(1, 4), terminal_width()), err=True)


def _print_reset(offsets: Sequence[Mapping[str, Any]], format_: str) -> None:
    if format_ == JSON:
        print_json(offsets)
    elif offsets:
        print_table(_PLAN_HEADER, _plan_rows(offsets), right=range(1, 4))
    else:
        click.echo("There is nothing to set: the group has no offsets; name a stream with --stream.", err=True)


@command.command("delete")
@click.argument("groups", metavar="GROUP...", nargs=-1, required=True, type=GroupName())
@yes_option
@format_option
@server_option
def _delete(groups: Sequence[str], yes: bool, format_: str, server: NodeAddress) -> None:
    """Delete consumer groups with their committed offsets.

    They must have no members: stop their consumers first. JSON output is one line for each deleted group.
    """
    delete_all(server, "group", groups, "committed offsets", yes=yes, format_=format_)
