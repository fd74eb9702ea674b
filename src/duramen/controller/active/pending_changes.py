"""The pending changes of one request while it is decided. Pure."""

from collections.abc import Sequence

from duramen.metadata.events import Event
from duramen.metadata.state import ControllerState

__all__ = ["PendingChanges"]


class PendingChanges:
    """A state with all proposals, and the events that a request adds.

    An event is in the state as soon as it is added, so that later decisions of the request include it.
    """

    __slots__ = ("_begin_offset", "events", "state")

    def __init__(self, state: ControllerState, begin_offset: int) -> None:
        """`begin_offset` is the offset of the first event in the metadata log."""
        self._begin_offset = begin_offset
        self.state = state
        self.events: list[Event] = []

    @property
    def end_offset(self) -> int:
        """The offset of the next event in the metadata log."""
        return self._begin_offset + len(self.events)

    def add(self, events: Sequence[Event]) -> None:
        """Add events to commit."""
        for event in events:
            self.state.apply(event)
        self.events += events
