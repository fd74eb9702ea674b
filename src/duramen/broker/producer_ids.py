"""Ids for producers: blocks of them are taken from the metadata, so that none is ever given out twice."""

from collections.abc import Callable

from duramen.base.errors import DuramenError
from duramen.broker.metadata import Metadata
from duramen.controller.decisions import allocate_producer_ids
from duramen.controller.events import ProducerIdsAllocated
from duramen.controller.state import ControllerState

__all__ = ["ProducerIdDone", "ProducerIds"]

ProducerIdDone = Callable[[int, DuramenError | None], None]
"""Called with (id, None), or with (-1, error)."""


class ProducerIds:
    """The node's block of ids, and the next one when it is used up."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._next = self._end = 0

    def allocate(self, done: ProducerIdDone) -> None:
        """An id that nobody has had; the block that it comes from is durable first."""
        if self._next < self._end:
            self._next += 1
            done(self._next - 1, None)
            return
        blocks: list[ProducerIdsAllocated] = []

        def allocated(error: DuramenError | None) -> None:
            if error is not None:
                done(-1, error)
                return
            block = blocks[0]
            if self._next >= self._end:
                self._next, self._end = block.first, block.first + block.count
            self.allocate(done)

        def decide(state: ControllerState) -> list[ProducerIdsAllocated]:
            blocks.extend(allocate_producer_ids(state))
            return blocks

        self._metadata.decide(decide, allocated)
