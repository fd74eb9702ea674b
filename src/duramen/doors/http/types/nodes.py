"""Nodes as types of the HTTP API: JSON on output."""

import msgspec

__all__ = [
    "FollowerLag",
    "KnownNode",
    "NodeHealth",
    "NodeInfo",
    "NodeList",
]


class FollowerLag(msgspec.Struct):
    """The lag of a follower in the partitions that the answering node leads.

    `partitions` and `records` count those that it lacks. It has not reported yet on `unheard` partitions. `seconds` is
    the longest time for which it has been behind.
    """

    node_id: int
    partitions: int
    records: int
    unheard: int
    seconds: float


class NodeHealth(msgspec.Struct):
    """The health of the node. `problem` is the text of `/readyz`; empty: the node is ready.

    `storage` is writable, full or failed.
    """

    problem: str
    storage: str
    uptime_seconds: float
    disk_free_bytes: int
    descriptors: int
    descriptors_limit: int


class NodeInfo(msgspec.Struct):
    """The node that answers."""

    version: str
    node_id: int
    cluster_id: str
    addresses: dict[str, str]
    health: NodeHealth
    followers: list[FollowerLag]


class KnownNode(msgspec.Struct):
    """A node of the cluster. `version` is known only for the node that answers."""

    version: str | None
    node_id: int
    cluster_id: str
    addresses: dict[str, str]


class NodeList(msgspec.Struct):
    """All nodes."""

    nodes: list[KnownNode]
