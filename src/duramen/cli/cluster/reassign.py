"""`duramen cluster reassign`: a partition gets other replicas."""

from collections.abc import Sequence
from typing import Any

import click

from duramen.cli.cluster.outcomes import print_outcomes
from duramen.cli.names import StreamName
from duramen.cli.output import JSON, format_option, print_json, print_table
from duramen.cli.server import Server, server_option

__all__ = ["command"]

_PATH = "/v1/cluster/reassignments"


def _ids(_: click.Context, __: click.Parameter, value: str | None) -> list[int] | None:
    if value is None:
        return None
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise click.BadParameter(f"{value!r} does not fit; it must be ids of nodes such as 1,2,3")
    return list(map(int, parts))


@click.command("reassign")
@click.argument("stream", required=False, type=StreamName())
@click.argument("partition", required=False, type=click.IntRange(0))
@click.option("--replicas", metavar="NODE,NODE…", callback=_ids,
              help="The nodes that are to hold it, the preferred leader first.")  # fmt: skip
@click.option("--cancel", is_flag=True, help="Let it keep the replicas that it had before it was reassigned.")
@format_option
@server_option
def command(
    stream: str | None, partition: int | None, replicas: list[int] | None, cancel: bool, format_: str, server: Server
) -> None:
    """Give PARTITION of STREAM other replicas; without arguments list the reassignments under way.

    It is done once the new replicas have all that the others have; `duramen cluster status` shows how many are not.
    """
    if stream is None and replicas is None and not cancel:
        _list(server, format_)
        return
    if stream is None or partition is None or (replicas is None) != cancel:
        raise click.UsageError("a reassignment is a STREAM, a PARTITION, and --replicas or --cancel")
    wish = {"partitions": [{"stream": stream, "partition": partition, "replicas": replicas}]}
    print_outcomes(server.post(_PATH, wish)["partitions"], "cancelled" if cancel else "begun", format_)


def _list(server: Server, format_: str) -> None:
    found: Sequence[dict[str, Any]] = server.get(_PATH)["reassignments"]
    if format_ == JSON:
        print_json(found)
    elif found:
        rows = [
            (
                one["stream"],
                str(one["partition"]),
                *(_nodes(one[field]) for field in ("replicas", "adding", "removing")),
            )
            for one in found
        ]
        print_table(("STREAM", "PARTITION", "REPLICAS", "ADDING", "REMOVING"), rows, right=(1,))
    else:
        click.echo("No reassignment is under way.", err=True)


def _nodes(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids)) or "-"
