"""`duramen cluster elect`: elects or moves leaders."""

from typing import Any

import click

from duramen.cli.cluster.nodes import NODE_ID, PARTITION
from duramen.cli.cluster.outcomes import print_outcomes
from duramen.cli.confirmation import check_askable, confirm, yes_option
from duramen.cli.names import StreamName
from duramen.cli.output import JSON, format_option
from duramen.cli.server import NodeAddress, server_option
from duramen.cli.tables import plain, table, terminal_width
from duramen.client.http import path_of

__all__ = ["command"]


@click.command("elect")
@click.argument("stream", required=False, type=StreamName())
@click.argument("partition", required=False, type=PARTITION)
@click.option("--leader", type=NODE_ID, metavar="NODE",
              help="The new leader, which has to be in sync. [default: the first of the replicas]")  # fmt: skip
@click.option("--unclean", is_flag=True,
              help="For partitions without a leader, elect the most complete live replica; records that it lacks are "
              "lost.")  # fmt: skip
@yes_option
@format_option
@server_option
def command(
    stream: str | None,
    partition: int | None,
    leader: int | None,
    unclean: bool,
    yes: bool,
    format_: str,
    server: NodeAddress,
) -> None:
    """Elect the leader of PARTITION of STREAM, of all its partitions, or of all partitions."""
    if leader is not None and (unclean or stream is None):
        raise click.UsageError("--leader needs a STREAM, and cannot be combined with --unclean")
    if unclean:
        check_askable(yes=yes)
    body: dict[str, object] = {"unclean": unclean}
    if stream is not None:
        body["partitions"] = [
            {"stream": stream, "partition": index} for index in _partitions(server, stream, partition)
        ]
    if leader is not None:
        body["leader"] = leader
    if unclean:
        _warn(server.post("/v1/cluster/elections/unclean/plan", {"partitions": body.get("partitions")})["partitions"])
        confirm("Elect these leaders? Records that they lack are lost.", yes=yes)
    outcomes = server.post("/v1/cluster/elections", body)["partitions"]
    if outcomes or format_ == JSON:
        print_outcomes(outcomes, "elected", format_)
    else:
        click.echo("Every partition has its preferred leader.", err=True)


def _warn(found: list[dict[str, Any]]) -> None:
    """Warn about the cost of an unclean election."""
    rows = [
        (
            plain(one["stream"]),
            str(one["partition"]),
            "-" if one["leader"] is None else str(one["leader"]),
            "-" if one["end_offset"] is None else str(one["end_offset"]),
            str(one["known_end"]),
            "-" if one["leader"] is None else str(one["records_lost"]),
            " ".join(map(str, one["silent_nodes"])) or "-",
        )
        for one in found
    ]
    header = ("STREAM", "PARTITION", "LEADER", "END", "KNOWN END", "LOST", "NOT REACHED")
    click.echo(table(header, rows, range(1, 6), terminal_width()), err=True)
    if any(one["silent_nodes"] for one in found):
        click.echo("Records that only unreachable nodes have are lost too; their number is unknown.", err=True)


def _partitions(server: NodeAddress, stream: str, partition: int | None) -> list[int]:
    if partition is not None:
        return [partition]
    return [part["partition"] for part in server.get(path_of("streams", stream))["partitions"]]
