"""A node with many partitions is silent: they leave it, some in each turn, and then it is fenced.

A controller that is deaf for long leads no more. Where it ends in between, the node is silent to the next one too, and
what has left it stays so.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

from duramen.base.deadlines import Deadlines
from duramen.base.ports import Clock
from duramen.controller.nodes import Node
from duramen.controller.partitions import PartitionId
from duramen.controller.state import ControllerState

__all__ = ["AT_ONCE", "Settling"]

AT_ONCE: Final = 1_000
"""Partitions in one turn; those of a node that has no more leave it in the proposal that fences it."""


class Settling:
    """`settle` decides on some partitions of a node, `fence` on what is left when all were; until it is over."""

    def __init__(
        self,
        deadlines: Deadlines,
        clock: Clock,
        settle: Callable[[Node, Sequence[PartitionId]], None],
        fence: Callable[[int], None],
    ) -> None:
        self._deadlines = deadlines
        self._clock = clock
        self._settle = settle
        self._fence = fence
        self._over = False

    def begin(self, state: ControllerState, node_id: int) -> None:
        """A node is silent: what it leads goes first."""
        node = state.registrations.get(node_id)
        if node is None or state.partitions.replica_count(node_id) <= AT_ONCE:
            self._fence(node_id)
            return
        led: list[PartitionId] = []
        rest: list[PartitionId] = []
        for place, partition in state.partitions.of_node(node_id):
            (led if partition.leader == node_id else rest).append(place)
        self._go_on(node, iter([*led, *rest]))

    def end(self) -> None:
        """Settle no more."""
        self._over = True

    def _go_on(self, node: Node, left: Iterator[PartitionId]) -> None:
        if self._over:
            return
        some = list(islice(left, AT_ONCE))
        if some:
            self._settle(node, some)
            self._deadlines.at(self._clock.monotonic_ms(), partial(self._go_on, node, left))
        else:
            self._fence(node.id)
