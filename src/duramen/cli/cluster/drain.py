"""`duramen cluster drain`: moves leadership off a node."""

import click

from duramen.cli.cluster.nodes import node_argument, node_path
from duramen.cli.server import NodeAddress, server_option

__all__ = ["command"]


@click.command("drain")
@node_argument
@server_option
def command(node_id: int, server: NodeAddress) -> None:
    """Move partition leadership off node NODE and keep it from becoming leader again until it is restarted.

    It keeps its replicas: `duramen cluster rebalance --without NODE` moves them. An orderly stop drains a node too.
    """
    server.post(f"{node_path(node_id)}/drain", {})
    click.echo(
        f"Node {node_id} drains: leadership moves off it, and it does not become leader again until it is restarted."
    )
