"""`duramen stream`: creates, shows, changes and deletes streams through a node's HTTP door."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from duramen.base.errors import NotLeader
from duramen.base.units import format_bytes
from duramen.cli.confirmation import check_askable, confirm, delete_all, yes_option
from duramen.cli.names import StreamName
from duramen.cli.output import JSON, format_option, print_json, print_table
from duramen.cli.server import NodeAddress, server_option
from duramen.cli.streams.description import groups_reading, print_stream
from duramen.cli.streams.pairs import pairs
from duramen.cli.tables import plain
from duramen.client.http import HttpNode, path_of
from duramen.client.leader_reports import led

__all__ = ["command"]

_STREAMS: Final = "/v1/streams"


def _counted(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"


@click.group("stream")
def command() -> None:
    """Create, list, describe, change and delete streams. A stream is a Kafka topic: `duramen topic` takes it too."""


@command.command("create")
@click.argument("name")
@click.option(
    "--subject",
    "subjects",
    metavar="SUBJECT",
    multiple=True,
    help="Capture messages on this NATS subject, which may have wildcards; may be repeated.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    metavar="NUMBER",
    help="Number of partitions [default: 1 with subjects, otherwise num.partitions of the node]",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 32_767),
    metavar="NUMBER",
    help="Number of replicas of each partition [default: default.replication.factor, or the number of nodes if that is "
    "less]",
)
@click.option(
    "--keyed",
    is_flag=True,
    help="Make the stream readable as snapshots, each key once: sets keyed=true and cleanup.policy=compact.",
)
@click.option(
    "--live-topic",
    metavar="NAME",
    help="Show Kafka consumers a keyed stream without superseded records, as the read-only topic NAME.",
)
@click.option(
    "--config",
    "configs",
    metavar="KEY=VALUE",
    multiple=True,
    callback=pairs,
    help="A stream setting; docs/settings.md lists them.",
)
@format_option
@server_option
def _create(
    name: str,
    subjects: Sequence[str],
    partitions: int | None,
    replication_factor: int | None,
    keyed: bool,
    live_topic: str | None,
    configs: dict[str, str],
    format_: str,
    server: NodeAddress,
) -> None:
    """Create the stream NAME. If it exists with the same definition, this succeeds too."""
    body: dict[str, object] = {"name": name, "subjects": list(subjects), "config": configs}
    if keyed:
        configs["keyed"] = "true"
    if live_topic is not None:
        configs["keyed.live.topic"] = live_topic
    if partitions is not None:
        body["partitions"] = partitions
    if replication_factor is not None:
        body["replication_factor"] = replication_factor
    stream = server.post(_STREAMS, body)
    if format_ == JSON:
        print_json(stream)
        return
    bound = f", bound to {', '.join(stream['subjects'])}" if stream["subjects"] else ""
    what = "created" if stream["created"] else "already exists with this definition"
    click.echo(f"Stream {name} {what}: {_counted(len(stream['partitions']))}{bound}.")
    for warning in stream["warnings"]:
        click.echo(f"Warning: {warning}.", err=True)


@command.command("list")
@click.option("--internal", is_flag=True, help="Include internal streams.")
@format_option
@server_option
def _list(internal: bool, format_: str, server: NodeAddress) -> None:
    """List streams."""
    listed = led(server, lambda node: list(node.listed(_STREAMS, "streams")))
    streams = [stream for stream in listed if internal or not stream["internal"]]
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
        print_table(("STREAM", "PARTITIONS", "RECORDS", "SIZE", "DURABILITY", "SUBJECTS"), rows, right=(1, 2, 3))
    else:
        click.echo("There are no streams yet; `duramen stream create NAME` creates one.", err=True)


@command.command("describe")
@click.argument("name", type=StreamName())
@format_option
@server_option
def _describe(name: str, format_: str, server: NodeAddress) -> None:
    """Show the stream NAME: its partitions, its NATS gaps, and the groups that read it."""
    (stream,) = led(server, lambda node: [node.get(path_of("streams", name))])
    stream["groups"], stream["groups_missing"] = groups_reading(server, name)
    if format_ == JSON:
        print_json(stream)
    else:
        print_stream(stream, in_cluster=len(server.get("/v1/cluster/nodes")["nodes"]) > 1)


@command.command("alter")
@click.argument("name", type=StreamName())
@click.option("--config", "configs", metavar="KEY=VALUE", multiple=True, callback=pairs, help="Set a stream setting.")
@click.option("--delete-config", "deleted", metavar="KEY", multiple=True, help="Reset a stream setting to its default.")
@format_option
@server_option
def _alter(name: str, configs: dict[str, str], deleted: Sequence[str], format_: str, server: NodeAddress) -> None:
    """Change the settings of the stream NAME."""
    if not configs and not deleted:
        raise click.UsageError("nothing to change; give --config KEY=VALUE or --delete-config KEY")
    if both := sorted(configs.keys() & set(deleted)):
        raise click.UsageError(f"{both[0]} is both set and deleted")
    stream = server.patch(path_of("streams", name), {"config": {**configs, **dict.fromkeys(deleted)}})
    if format_ == JSON:
        print_json(stream)
    else:
        click.echo(f"Stream {name} changed.")


@command.command("add-partitions")
@click.argument("name", type=StreamName())
@click.argument("total", type=click.IntRange(1))
@format_option
@server_option
def _add_partitions(name: str, total: int, format_: str, server: NodeAddress) -> None:
    """Raise the number of partitions of the stream NAME to TOTAL; it cannot be lowered again.

    Existing records do not move, but new records of a key may go to another partition.
    """
    before = len(server.get(path_of("streams", name))["partitions"])
    stream = server.patch(path_of("streams", name), {"partitions": total})
    if format_ == JSON:
        print_json(stream)
    elif total == before:
        click.echo(f"Stream {name} already has {_counted(total)}.")
    else:
        click.echo(f"Stream {name} now has {_counted(total)}, {before} before.")


@command.command("delete-records")
@click.argument("name", type=StreamName())
@click.option(
    "--before", metavar="OFFSET|end", required=True, help="The first offset to keep; `end` deletes all records."
)
@click.option("--partition", type=click.IntRange(0), help="Only this partition; the default is all.")
@yes_option
@format_option
@server_option
def _delete_records(
    name: str, before: str, partition: int | None, yes: bool, format_: str, server: NodeAddress
) -> None:
    """Delete the oldest records of the stream NAME, up to an offset; it cannot be undone."""
    if before != "end" and not (before.isascii() and before.isdigit()):
        raise click.UsageError(f"--before is an offset or `end`, not {before!r}")
    check_askable(yes=yes)
    path = path_of("streams", name)
    parts = [part for part in server.get(path)["partitions"] if partition in (None, part["partition"])]
    where = "in each partition" if partition is None else f"in partition {partition}"
    what = "all records" if before == "end" else f"the records before offset {before}"
    confirm(f"Delete {what} of {plain(name)} {where}?", yes=yes)
    body = {"before": None if before == "end" else int(before), "partition": partition}
    # One question, so that nothing is deleted where one partition cannot be cut there; others lead only in a cluster.
    if all(part["leads"] for part in parts):
        deleted = server.post(f"{path}/records/delete", body)["partitions"]
    else:
        deleted = [
            one
            for part in parts
            for one in _leader_of(server, part).post(
                f"{path}/records/delete", {**body, "partition": part["partition"]}
            )["partitions"]
        ]
    if format_ == JSON:
        print_json(deleted)
        return
    for one in deleted:
        click.echo(f"Partition {one['partition']} of {name} now starts at offset {one['start_offset']}.")


@command.command("delete")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, type=StreamName())
@yes_option
@format_option
@server_option
def _delete(names: Sequence[str], yes: bool, format_: str, server: NodeAddress) -> None:
    """Delete streams with all their records. JSON output is one line for each deleted stream."""
    delete_all(server, "stream", names, "records", yes=yes, format_=format_)


def _leader_of(server: HttpNode, part: Mapping[str, Any]) -> HttpNode:
    """The node that leads a partition, as `server` tells of it. Raises NotLeader."""
    if part["leads"]:
        return server
    for other in server.others({part["leader"]}):
        return other
    raise NotLeader(f"partition {part['partition']} has no leader at present")
