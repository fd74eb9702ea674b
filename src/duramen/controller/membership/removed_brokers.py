"""Brokers listed in Metadata: live ones, and removed ones for a grace period."""

from collections.abc import Iterable
from typing import Final

from duramen.metadata.nodes import Node

__all__ = ["SHOWN_MS", "RemovedBrokers"]

SHOWN_MS: Final = 60_000
"""How long a fenced node is still named: longer than a restart takes.

A node is fenced as soon as its connections close. Clients of the librdkafka family drop a broker that is not named, and
what they had asked it for may then wait without end (`send_offsets_to_transaction` does); one that is named and away
they look for again.
"""


class RemovedBrokers:
    """Since when nodes are fenced, as far as this process has seen it."""

    __slots__ = ("_since_ms",)

    def __init__(self) -> None:
        self._since_ms: dict[int, int] = {}

    def told(self, nodes: Iterable[Node], now_ms: int) -> None:
        """These are the registrations."""
        self._since_ms = {node.id: self._since_ms.get(node.id, now_ms) for node in nodes if node.fenced}

    def shown(self, nodes: Iterable[Node], now_ms: int) -> list[Node]:
        """Of these the ones to be named."""
        since_ms = self._since_ms
        return [node for node in nodes if not node.fenced or now_ms - since_ms.get(node.id, now_ms) < SHOWN_MS]
