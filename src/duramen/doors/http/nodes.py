"""The nodes there are: the one that answers, and the others of its cluster that are live."""

from duramen import __version__
from duramen.base.errors import StorageFull
from duramen.doors.http.cluster import addresses_of
from duramen.doors.http.routes import Call, Route
from duramen.doors.http.types import KnownNode, NodeHealth, NodeInfo, NodeList

__all__ = ["ROUTES"]


async def _node(call: Call) -> NodeInfo:
    node, broker = call.node, call.broker
    return NodeInfo(__version__, broker.node_id, node.cluster_id, dict(node.addresses), _health(call))


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
        for node in call.broker.standing.nodes
        if node.id != mine.node_id
    ]
    return NodeList(sorted(known, key=lambda one: one.node_id))


ROUTES = (
    Route("GET", "/v1/node", _node, "The node that answers: version, ids, the addresses of its doors, and how it is"),
    Route("GET", "/v1/nodes", _nodes, "All nodes of the cluster that are live; the versions of others are null"),
)
