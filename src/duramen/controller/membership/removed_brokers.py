"""Brokers listed in Metadata: live ones, and removed ones for a grace period."""

from collections.abc import Iterable
from typing import Final

from duramen.metadata.nodes import Node

__all__ = ["SHOWN_MS", "RemovedBrokers"]

SHOWN_MS: Final = 60_000
"""The grace period of a fenced node: longer than a restart.

A node is fenced as soon as its connections close. Clients of the librdkafka family drop a broker that is not listed,
and their pending requests to it may then wait forever (`send_offsets_to_transaction` does); a listed broker that is
away they connect to again.
"""


class RemovedBrokers:
    """When nodes were fenced, as far as this process has seen it."""

    __slots__ = ("_since_ms",)

    def __init__(self) -> None:
        self._since_ms: dict[int, int] = {}

    def update(self, nodes: Iterable[Node], now_ms: int) -> None:
        """Set the registrations."""
        self._since_ms = {node.id: self._since_ms.get(node.id, now_ms) for node in nodes if node.fenced}

    def shown(self, nodes: Iterable[Node], now_ms: int) -> list[Node]:
        """The nodes to list."""
        since_ms = self._since_ms
        return [node for node in nodes if not node.fenced or now_ms - since_ms.get(node.id, now_ms) < SHOWN_MS]
