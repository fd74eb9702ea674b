"""The narrow port for everything that a cluster must agree on: proposals of events, and their commits."""

from collections.abc import Callable, Sequence
from typing import Protocol

from duramen.base.errors import DuramenError
from duramen.base.ids import Position
from duramen.metadata.events import Event

__all__ = ["Quorum"]


class Quorum(Protocol):
    """Orders events and makes them durable; on a single node committed means synced."""

    def propose(self, events: Sequence[Event], done: Callable[[Position | DuramenError], None]) -> None:
        """Append `events`, at least one, in one batch; then `done(position of the last)` once committed.

        Proposals are committed, or fail, in the order in which they were made.
        """
