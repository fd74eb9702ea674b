"""Moves partitions off a node that has many: some in each turn, until none is left.

A controller that blocks for long loses its leadership. If its term ends in between, the next controller finds the node
in the same state, silent or draining, and moves already made stay.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

from duramen.base.deadlines import Deadlines
from duramen.base.ports import Clock
from duramen.metadata import fencing
from duramen.metadata.nodes import Node
from duramen.metadata.partitions import PartitionId
from duramen.metadata.state import ControllerState

__all__ = ["Evacuation"]

_Settle = Callable[[Node, Sequence[PartitionId]], None]


class Evacuation:
    """Moves the partitions of nodes in steps, until it is closed."""

    def __init__(self, deadlines: Deadlines, clock: Clock) -> None:
        self._deadlines = deadlines
        self._clock = clock
        self._drained: set[int] = set()
        self._over = False

    def leave(self, state: ControllerState, node_id: int, settle: _Settle, fence: Callable[[int], None]) -> None:
        """A node is silent: `settle` moves some of its partitions, those that it leads first, `fence` the rest.

        A node with few partitions is fenced in one proposal with their moves.
        """
        node = state.registrations.get(node_id)
        if node is None or not fencing.has_many(state, node_id):
            fence(node_id)
        else:
            self._go_on(node, _leaders_first(state, node_id), settle, partial(fence, node_id))

    def drain(self, state: ControllerState, node_id: int, settle: _Settle) -> None:
        """If a draining node has partitions that it could give up, `settle` moves them as in `leave`."""
        node = state.registrations.get(node_id)
        if node is None or node.fenced or not node.draining or node_id in self._drained:
            return
        if not fencing.is_drained(state, node):
            self._drained.add(node_id)
            self._go_on(node, _leaders_first(state, node_id), settle, partial(self._drained.discard, node_id))

    def end(self) -> None:
        """Stop all moves."""
        self._over = True

    def _go_on(self, node: Node, left: Iterator[PartitionId], settle: _Settle, done: Callable[[], None]) -> None:
        if self._over:
            return
        some = list(islice(left, fencing.AT_ONCE))
        if some:
            settle(node, some)
            self._deadlines.at(self._clock.monotonic_ms(), partial(self._go_on, node, left, settle, done))
        else:
            done()


def _leaders_first(state: ControllerState, node_id: int) -> Iterator[PartitionId]:
    led: list[PartitionId] = []
    rest: list[PartitionId] = []
    for place, partition in state.partitions.of_node(node_id):
        (led if partition.leader == node_id else rest).append(place)
    return iter([*led, *rest])
