"""Information about nodes: the one that answers, and the other live nodes of its cluster."""

import asyncio
from typing import Final

from duramen import __version__
from duramen.base.errors import StorageFull
from duramen.doors.http.cluster.routes import addresses_of
from duramen.doors.http.serving.routes import Call, HttpRoute, on_cluster
from duramen.doors.http.types.nodes import FollowerLag, KnownNode, NodeHealth, NodeInfo, NodeList
from duramen.service.authorize import Operation

__all__ = ["ROUTES"]

_AT_ONCE: Final = 500  # partitions: about a millisecond


async def _node(call: Call) -> NodeInfo:
    node, broker = call.node, call.broker
    return NodeInfo(
        __version__, broker.node_id, node.cluster_id, dict(node.addresses), _health(call), await _followers(call)
    )


async def _followers(call: Call) -> list[FollowerLag]:
    """The followers that are behind in partitions that this node leads."""
    found: dict[int, FollowerLag] = {}
    for at, behind in enumerate(call.broker.membership.behind(), 1):
        if at % _AT_ONCE == 0:
            await asyncio.sleep(0)
        for one in behind:
            lag = found.setdefault(one.node_id, FollowerLag(one.node_id, 0, 0, 0, 0.0))
            lag.partitions += 1
            lag.records += one.records or 0
            lag.unheard += one.records is None
            lag.seconds = max(lag.seconds, one.waiting_ms / 1000)
    return [found[node_id] for node_id in sorted(found)]


def _health(call: Call) -> NodeHealth:
    usage, condition = call.node.usage(), call.broker.store.condition.problem
    storage = "writable" if condition is None else "full" if isinstance(condition, StorageFull) else "failed"
    return NodeHealth(
        call.node.problem(), storage, usage.uptime_ms / 1000, usage.disk_free_bytes, usage.descriptors,
        usage.descriptors_limit,
    )  # fmt: skip


async def _nodes(call: Call) -> NodeList:
    mine = await _node(call)
    known = [KnownNode(mine.version, mine.node_id, mine.cluster_id, mine.addresses)]
    known += [
        KnownNode(None, node.id, mine.cluster_id, addresses_of(node))
        for node in call.broker.membership.nodes
        if node.id != mine.node_id
    ]
    return NodeList(sorted(known, key=lambda one: one.node_id))


ROUTES = (
    HttpRoute(
        "GET",
        "/v1/node",
        _node,
        on_cluster(Operation.DESCRIBE),
        "The node that answers: version, ids, the addresses of its doors, health",
    ),
    HttpRoute(
        "GET",
        "/v1/nodes",
        _nodes,
        on_cluster(Operation.DESCRIBE),
        "All live nodes of the cluster; `version` is null for nodes other than the one that answers",
    ),
)
