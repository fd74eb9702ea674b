"""`duramen cluster add`: makes a node a voter."""

import click

from duramen.cli.cluster.nodes import node_argument
from duramen.cli.server import NodeAddress, server_option

__all__ = ["command"]


@click.command("add")
@node_argument
@server_option
def command(node_id: int, server: NodeAddress) -> None:
    """Make node NODE a voter of the controller's quorum.

    Start it first, with a live node in its seeds: it joins and follows automatically. Use 3 or 5 voters. `duramen
    cluster rebalance` moves partitions to a new node.
    """
    server.post("/v1/cluster/voters", {"node_id": node_id})
    click.echo(f"Node {node_id} votes.")
    voters = len(server.get("/v1/cluster")["quorum"]["voters"])
    if voters % 2 == 0:
        click.echo(
            f"There are {voters} voters now, which tolerate no more failures than {voters - 1}. Use 3 or 5 voters.",
            err=True,
        )
