"""Which nodes a partition gets, or lets go, to have another number of replicas. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from duramen.base.errors import ReplicationFactorInvalid

__all__ = ["with_factor"]


def with_factor(
    partitions: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]], factor: int
) -> dict[int, list[int]]:
    """The replicas of those partitions that have fewer or more than `factor`, by the partition's number.

    Who holds it stays, in its order; of too many, those that are not in sync go first. New ones are live nodes of racks
    that have fewest of the partition, of these the ones with fewest replicas. Raises ReplicationFactorInvalid.
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
