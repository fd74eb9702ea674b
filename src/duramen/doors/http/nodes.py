"""The nodes there are: the one that answers, and the others of its cluster that are live."""

from duramen import __version__
from duramen.doors.http.cluster import addresses_of
from duramen.doors.http.routes import Call, Route
from duramen.doors.http.types import KnownNode, NodeInfo, NodeList

__all__ = ["ROUTES"]


async def _node(call: Call) -> NodeInfo:
    node, broker = call.node, call.broker
    return NodeInfo(__version__, broker.node_id, node.cluster_id, dict(node.addresses))


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
    Route("GET", "/v1/node", _node, "The node that answers: version, ids, and the addresses of its doors"),
    Route("GET", "/v1/nodes", _nodes, "All nodes of the cluster that are live; the versions of others are null"),
)
