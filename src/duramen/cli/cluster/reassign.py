"""`duramen cluster reassign`: changes the replicas of a partition."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click

from duramen.base.errors import ReplicationFactorInvalid, StreamNotFound
from duramen.cli.cluster.nodes import LARGEST_ID, PARTITION
from duramen.cli.cluster.outcomes import print_outcomes
from duramen.cli.names import StreamName
from duramen.cli.output import JSON, format_option, print_json, print_table
from duramen.cli.server import NodeAddress, server_option
from duramen.client.http import path_of

__all__ = ["command"]

_PATH = "/v1/cluster/reassignments"


def _ids(_: click.Context, __: click.Parameter, value: str | None) -> list[int] | None:
    if value is None:
        return None
    parts = [part.strip() for part in value.split(",")]
    if not all(re.fullmatch("[0-9]{1,10}", part) and int(part) <= LARGEST_ID for part in parts):
        raise click.BadParameter(f"{value!r} does not fit; it must be ids of nodes such as 1,2,3")
    return list(map(int, parts))


@click.command("reassign")
@click.argument("stream", required=False, type=StreamName())
@click.argument("partition", required=False, type=PARTITION)
@click.option("--replicas", metavar="NODE,NODE…", callback=_ids,
              help="The nodes of the replicas, the preferred leader first.")  # fmt: skip
@click.option("--replication-factor", "factor", type=click.IntRange(1, 32767), metavar="NUMBER",
              help="The number of replicas; without PARTITION of each partition of STREAM.")  # fmt: skip
@click.option("--cancel", is_flag=True, help="Cancel the reassignment, and keep the earlier replicas.")
@format_option
@server_option
def command(
    stream: str | None,
    partition: int | None,
    replicas: list[int] | None,
    factor: int | None,
    cancel: bool,
    format_: str,
    server: NodeAddress,
) -> None:
    """Change the replicas of PARTITION of STREAM; without arguments list the reassignments in progress.

    A reassignment is complete when the new replicas have caught up; `duramen cluster status` shows how many are in
    progress. With `--replication-factor` the nodes are selected automatically: streams of a former standalone node
    have one replica until then.
    """
    ways = [replicas is not None, factor is not None, cancel]
    if stream is None and not any(ways):
        _list(server, format_)
        return
    if stream is None or sum(ways) != 1 or (partition is None and factor is None):
        raise click.UsageError(
            "a reassignment needs a STREAM, a PARTITION, and --replicas, --replication-factor or --cancel"
        )
    if factor is None:
        wanted: Sequence[object] = [{"stream": stream, "partition": partition, "replicas": replicas}]
    else:
        wanted = _of_factor(server, stream, partition, factor)
    if wanted or format_ == JSON:
        outcomes = server.post(_PATH, {"partitions": wanted})["partitions"] if wanted else []
        print_outcomes(outcomes, "cancelled" if cancel else "begun", format_)
    else:
        click.echo(f"Every named partition has {factor} replicas.", err=True)


def _of_factor(server: NodeAddress, stream: str, partition: int | None, factor: int) -> list[object]:
    found = server.get(path_of("streams", stream))["partitions"]
    named = [one for one in found if partition in (None, one["partition"])]
    if not named:
        raise StreamNotFound(f"{stream} has no partition {partition}: it has {len(found)}")
    wanted = _with_factor(named, server.get("/v1/cluster/nodes")["nodes"], factor)
    return [{"stream": stream, "partition": index, "replicas": members} for index, members in wanted.items()]


def _list(server: NodeAddress, format_: str) -> None:
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
        click.echo("No reassignment is in progress.", err=True)


def _nodes(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids)) or "-"


def _with_factor(
    partitions: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]], factor: int
) -> dict[int, list[int]]:
    """The replicas of partitions that have fewer or more than `factor`, by the partition's number.

    Present replicas stay, in their order; of too many, those that are not in sync are removed first. New ones are live
    nodes of the racks with fewest replicas of the partition, of these the ones with fewest replicas. Raises
    ReplicationFactorInvalid.
    """
    racks = {node["id"]: node["rack"] for node in nodes}
    load = Counter({node["id"]: node["replicas"] for node in nodes})
    live = [node["id"] for node in nodes if node["state"] == "live"]
    wanted: dict[int, list[int]] = {}
    for partition in partitions:
        replicas = _shrunk(partition, factor)
        while len(replicas) < factor:
            used = Counter(racks.get(node_id) for node_id in replicas)
            able = [node_id for node_id in live if node_id not in replicas]
            if not able:
                raise ReplicationFactorInvalid(
                    f"partition {partition['partition']} cannot have {factor} replicas: {len(live)} nodes are live"
                )
            to = min(able, key=lambda node_id: (used[racks[node_id]], load[node_id], node_id))
            replicas.append(to)
            load[to] += 1
        if replicas != partition["replicas"]:
            wanted[partition["partition"]] = replicas
    return wanted


def _shrunk(partition: Mapping[str, Any], factor: int) -> list[int]:
    replicas: list[int] = partition["replicas"]
    worth = sorted(
        replicas,
        key=lambda node_id: (node_id != partition["leader"], node_id not in partition["in_sync"]),
    )
    return [node_id for node_id in replicas if node_id in worth[:factor]]
