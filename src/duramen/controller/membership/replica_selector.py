"""Selects the replica that serves a consumer with a rack (KIP-392). Pure."""

from collections.abc import Callable, Iterable

from duramen.metadata.nodes import Node

__all__ = ["nearest"]


def nearest(rack_id: str, offset: int, holders: Iterable[Node], covered: Callable[[Node], int]) -> int | None:
    """The node of that rack with most of the log, if it has all below the offset; None without one.

    `holders` are live and have a replica; `covered` returns the offset below which a node has all, -1 if unknown.
    """
    there = {node.id: covered(node) for node in holders if node.rack == rack_id}
    return max(
        (node_id for node_id, end_offset in there.items() if end_offset >= offset),
        key=lambda node_id: there[node_id],
        default=None,
    )
