"""`duramen cluster remove`: removes a stopped node from the cluster."""

import click

from duramen.cli.cluster.nodes import node_argument, node_path
from duramen.cli.confirmation import check_askable, confirm, yes_option
from duramen.cli.server import NodeAddress, server_option

__all__ = ["command"]


@click.command("remove")
@node_argument
@yes_option
@server_option
def command(node_id: int, yes: bool, server: NodeAddress) -> None:
    """Remove node NODE and its vote from the cluster.

    Move its replicas first with `duramen cluster rebalance --without NODE`, then stop it. A node that is live, or
    holds replicas, is not removed.
    """
    check_askable(yes=yes)
    confirm(f"Remove node {node_id} from the cluster?", yes=yes)
    server.delete(node_path(node_id))
    click.echo(f"Node {node_id} is removed from the cluster.")
