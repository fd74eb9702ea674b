"""Waits until a node has a record, for both clients: asks nodes until one knows the record."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode

from duramen.base.errors import (
    NodeNotFound,
    NodeStopping,
    NotLeader,
    RequestInvalid,
    RequestTimedOut,
    ServerUnreachable,
)
from duramen.client.api.arguments import INT32_MAX, INT64_MAX, seconds, text, whole
from duramen.client.api.http import Program, Question, doors, nodes
from duramen.client.api.values import value_of
from duramen.client.http import path_of

__all__ = ["wait_replicated"]

_LONGEST_POLL_MS: Final = 10_000
_ANY_EPOCH: Final = -1
_ELSEWHERE: Final = (NotLeader, NodeStopping, ServerUnreachable)
"""With these another node may know more."""


def wait_replicated(
    stream: str,
    partition: int,
    position: int | tuple[int, int],
    timeout_s: float,
    node: int | None,
    now_s: Callable[[], float],
) -> Program[None]:
    """Ask `node`, or any that holds the partition, until it has the record. `now_s` is a clock that never goes back."""
    text("stream", stream)
    partition = whole("partition", partition, 0, INT32_MAX)
    epoch, offset = _position(position)
    node = None if node is None else whole("node", node, 0, INT32_MAX)
    until_s = now_s() + seconds("timeout_s", timeout_s)
    servers = [""] if node is None else [(yield from _server_of(node))]
    knows_all = node is not None
    while True:
        wait_ms = max(0, min(_LONGEST_POLL_MS, round((until_s - now_s()) * 1000)))
        query = urlencode({"offset": offset, "epoch": epoch, "max_wait_ms": wait_ms})
        path = f"{path_of('streams', stream)}/partitions/{partition}/replicated?{query}"
        try:
            found = yield Question("GET", path, server=servers[0])
        except _ELSEWHERE:
            if not knows_all:
                servers += yield from doors()
                knows_all = True
            if len(servers) == 1:
                raise
            del servers[0]
            continue
        if value_of(found, dict[str, Any]).get("replicated"):
            return
        if now_s() >= until_s:
            raise RequestTimedOut(f"offset {offset} of partition {partition} of {stream} is not there in {timeout_s} s")


def _position(position: object) -> tuple[int, int]:
    """The leader epoch, if one is said, and the offset."""
    if not isinstance(position, tuple | list):
        return _ANY_EPOCH, whole("position", position, 0, INT64_MAX)
    if len(position) != 2:
        raise RequestInvalid(f"position is an offset or (leader epoch, offset), not {len(position)} values")
    return whole("position[0]", position[0], 0, INT32_MAX), whole("position[1]", position[1], 0, INT64_MAX)


def _server_of(node: int) -> Program[str]:
    own = value_of((yield Question("GET", "/v1/node")), dict[str, Any])
    if own.get("node_id") == node:
        return ""
    for one in (yield from nodes()):
        if one["id"] == node and "http" in one["endpoints"]:
            return str(one["endpoints"]["http"])
    raise NodeNotFound(f"there is no node {node} in the cluster")
