"""Requests that wait for a snapshot which a view has not reached yet."""

from collections.abc import Callable

from duramen.broker.views.state import ViewState

__all__ = ["SnapshotWaiters"]


class SnapshotWaiters:
    """Actions, each with the position that the view has to reach first."""

    def __init__(self, state: ViewState) -> None:
        self._state = state
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    def add(self, position: int, action: Callable[[], None]) -> Callable[[], None]:
        """Do `action` once everything below the position is applied; the result cancels that."""
        entry = position, action
        self._waiting.append(entry)
        return lambda: self._waiting.remove(entry) if entry in self._waiting else None

    def tell(self) -> None:
        """Do the actions whose positions are reached; all of them where the view is closed."""
        # As `bounds` tells it: a job that is under way may be further.
        state = self._state
        position = -1 if state.view is None else state.facts.position
        for entry in [entry for entry in self._waiting if state.closed or entry[0] <= position]:
            self._waiting.remove(entry)
            entry[1]()
