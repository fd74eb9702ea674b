"""Producer ids: allocated in blocks from the metadata, so that each is used once."""

from collections.abc import Callable
from functools import partial

from duramen.base.errors import DuramenError
from duramen.broker.changes import Changes
from duramen.broker.control.requests import AllocateProducerIds
from duramen.broker.control.responses import Block, Value

__all__ = ["ProducerIdDone", "ProducerIds"]

ProducerIdDone = Callable[[int, DuramenError | None], None]
"""Called with (id, None), or with (-1, error)."""


class ProducerIds:
    """The node's block of ids; it requests another when the block is used up."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._next = self._end = 0

    def allocate(self, done: ProducerIdDone) -> None:
        """Allocate a new id; its block is durable first."""
        if self._next < self._end:
            self._next += 1
            done(self._next - 1, None)
        else:
            self._changes.ask(AllocateProducerIds(), partial(self._allocated, done))

    def _allocated(self, done: ProducerIdDone, outcome: Value | DuramenError) -> None:
        if isinstance(outcome, DuramenError):
            done(-1, outcome)
            return
        if not isinstance(outcome, Block):
            raise TypeError(f"{outcome} is no block of ids")
        if self._next >= self._end:
            self._next, self._end = outcome.first, outcome.first + outcome.count
        self.allocate(done)
