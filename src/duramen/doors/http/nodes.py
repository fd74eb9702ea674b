"""The nodes there are: one, until there are clusters."""

from duramen import __version__
from duramen.doors.http.routes import Call, Route
from duramen.doors.http.types import NodeInfo, NodeList

__all__ = ["ROUTES"]


async def _node(call: Call) -> NodeInfo:
    node, broker = call.node, call.broker
    return NodeInfo(__version__, broker.node_id, node.cluster_id, dict(node.addresses))


async def _nodes(call: Call) -> NodeList:
    return NodeList([await _node(call)])


ROUTES = (
    Route("GET", "/v1/node", _node, "The node that answers: version, ids, and the addresses of its doors"),
    Route("GET", "/v1/nodes", _nodes, "All nodes"),
)
