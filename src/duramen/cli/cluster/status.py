"""`duramen cluster status`: the state of a cluster on one screen."""

import time
from collections.abc import Mapping
from typing import Any

import click

from duramen.base.units import format_ms
from duramen.cli.cluster.node_health import HEALTH_HEADER, HEALTH_RIGHT, fetch_health, health_row
from duramen.cli.cluster.places import named_places
from duramen.cli.output import JSON, format_option, print_json, print_table
from duramen.cli.server import NodeAddress, server_option
from duramen.cli.tables import plain

__all__ = ["command"]


@click.command("status")
@format_option
@server_option
def command(format_: str, server: NodeAddress) -> None:
    """Show the cluster: its quorum, its nodes with their health, and the partitions that need attention.

    LAG is what a node lacks of partitions with other leaders, as reported by these; `>=`: a leader has no report of
    the node yet.
    """
    found = server.get("/v1/cluster")
    health = fetch_health(server, found["nodes"])
    if format_ == JSON:
        nodes = [{**node, **one} for node, one in zip(found["nodes"], health, strict=True)]
        print_json({**found, "nodes": nodes})
        return
    click.echo(f"Cluster     {plain(found['cluster_id'])}, feature level {found['feature_level']}")
    _print_quorum(found)
    click.echo()
    _print_nodes(found)
    click.echo()
    print_table(HEALTH_HEADER, [health_row(one) for one in health], right=HEALTH_RIGHT)
    click.echo()
    _print_partitions(found["partitions"])


def _print_quorum(found: Mapping[str, Any]) -> None:
    quorum = found["quorum"]
    if found["alone"]:
        click.echo(f"Quorum      node {found['node_id']} is standalone: the only voter")
        return
    leader = "nobody leads" if quorum["leader_id"] is None else f"node {quorum['leader_id']} leads"
    click.echo(f"Quorum      {leader} in epoch {quorum['epoch']}; committed up to offset {quorum['high_watermark']}")
    if not quorum["from_leader"]:
        click.echo(f"            No leader has answered: this is what node {found['node_id']} knows alone.")
    click.echo()
    now_ms = time.time_ns() // 1_000_000
    roles = [("voter", one) for one in quorum["voters"]] + [("observer", one) for one in quorum["observers"]]
    rows = [
        (
            str(one["node_id"]),
            "leader" if one["node_id"] == quorum["leader_id"] and role == "voter" else role,
            *(_number(one[field]) for field in ("end_offset", "synced_offset", "lag")),
            "-" if one["fetched_ms"] is None else f"{format_ms(max(0, now_ms - one['fetched_ms']))} ago",
            one["directory_id"],
        )
        for role, one in roles
    ]
    header = ("NODE", "QUORUM", "END", "SYNCED", "LAG", "LAST HEARD", "DIRECTORY")
    # A node is there twice for a while after it has come with another disk.
    columns = len(header) - (len({one["node_id"] for _, one in roles}) == len(roles))
    print_table(header[:columns], [row[:columns] for row in rows], right=(0, 2, 3, 4))


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _print_nodes(found: Mapping[str, Any]) -> None:
    committed = found["quorum"]["high_watermark"]
    rows = [
        (
            str(node["id"]),
            node["state"],
            node["rack"] or "-",
            str(node["leaders"]),
            str(node["replicas"]),
            str(node["read_replicas"]),
            "-" if node["applied_offset"] is None else str(max(0, committed - node["applied_offset"])),
            node["endpoints"].get("kafka", "-"),
        )
        for node in found["nodes"]
    ]
    header = ("NODE", "STATE", "RACK", "LEADERS", "REPLICAS", "READ", "METADATA LAG", "KAFKA")
    print_table(header, rows, right=(0, 3, 4, 5, 6))


def _print_partitions(partitions: Mapping[str, Any]) -> None:
    kinds = (("leaderless", "without a leader"), ("under_replicated", "under-replicated"), ("moving", "being moved"))
    counts = ", ".join(f"{partitions[kind]['count']} {name}" for kind, name in kinds)
    click.echo(f"Partitions  {partitions['count']}: {counts}")
    for kind, name in kinds:
        if partitions[kind]["count"]:
            click.echo(f"            {name}: {named_places(partitions[kind])}")
