"""`duramen cluster elect`: leaders are elected, or moved."""

import click

from duramen.cli.asking import check_askable, confirm, yes_option
from duramen.cli.cluster.nodes import NODE_ID, PARTITION
from duramen.cli.cluster.outcomes import print_outcomes
from duramen.cli.names import StreamName
from duramen.cli.output import JSON, format_option
from duramen.cli.server import Server, server_option
from duramen.client.http import path_of

__all__ = ["command"]


@click.command("elect")
@click.argument("stream", required=False, type=StreamName())
@click.argument("partition", required=False, type=PARTITION)
@click.option("--leader", type=NODE_ID, metavar="NODE",
              help="Let this node lead, which has to be in sync. [default: the first of the replicas]")  # fmt: skip
@click.option("--unclean", is_flag=True,
              help="Where nobody leads, elect a replica that may lack acknowledged records, now lost.")  # fmt: skip
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
    server: Server,
) -> None:
    """Elect the leader of a PARTITION of STREAM, of all its partitions, or of all partitions there are."""
    if leader is not None and (unclean or stream is None):
        raise click.UsageError("--leader is for a STREAM, and never with --unclean")
    if unclean:
        check_askable(yes=yes)
        confirm("Elect leaders that may lack acknowledged records? They are lost then.", yes=yes)
    wish: dict[str, object] = {"unclean": unclean}
    if stream is not None:
        wish["partitions"] = [
            {"stream": stream, "partition": index} for index in _partitions(server, stream, partition)
        ]
    if leader is not None:
        wish["leader"] = leader
    outcomes = server.post("/v1/cluster/elections", wish)["partitions"]
    if outcomes or format_ == JSON:
        print_outcomes(outcomes, "elected", format_)
    else:
        click.echo("Every partition has the leader that it should have.", err=True)


def _partitions(server: Server, stream: str, partition: int | None) -> list[int]:
    if partition is not None:
        return [partition]
    return [part["partition"] for part in server.get(path_of("streams", stream))["partitions"]]
