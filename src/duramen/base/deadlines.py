"""A heap of deadlines, which the caller's clock fires.

Nothing here looks at a clock or waits. The node's event loop, a test or a simulator asks for the next deadline and
calls `fire` when that time comes.
"""

import heapq
from collections.abc import Callable

__all__ = ["Alarm", "Deadline", "Deadlines"]


class Deadline:
    """Something registered to happen; `cancel` makes it not happen."""

    __slots__ = ("action", "at_ms")

    def __init__(self, at_ms: int, action: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Cancel the action; firing it then does nothing."""
        self.action = None


class Deadlines:
    """Deadlines in the order of their times, and of their registration where times are equal."""

    __slots__ = ("_cancelled_limit", "_count", "_heap", "on_earlier")

    def __init__(self) -> None:
        self.on_earlier: Callable[[], None] | None = None  # called when the next deadline comes earlier than before
        self._heap: list[tuple[int, int, Deadline]] = []
        self._count = 0
        self._cancelled_limit = 64

    def __len__(self) -> int:
        """How many are kept, cancelled ones among them."""
        return len(self._heap)

    def at(self, at_ms: int, action: Callable[[], None]) -> Deadline:
        """Register `action` for the monotonic time `at_ms`."""
        deadline = Deadline(at_ms, action)
        self._count += 1
        heapq.heappush(self._heap, (at_ms, self._count, deadline))
        if len(self._heap) > self._cancelled_limit:
            self._sweep()
        if self.on_earlier is not None and self._heap[0][2] is deadline:
            self.on_earlier()
        return deadline

    def _sweep(self) -> None:
        # Long polls are mostly cancelled: without this the heap would grow with the rate times the longest wait.
        self._heap = [entry for entry in self._heap if entry[2].action is not None]
        heapq.heapify(self._heap)
        self._cancelled_limit = 2 * len(self._heap) + 64

    def next_ms(self) -> int | None:
        """When `fire` has something to do next; None where nothing is registered."""
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def fire(self, now_ms: int, most: int | None = None) -> None:
        """Run all due actions, oldest first, including those that they register for now.

        With `most`, at most that many; the rest stays due.
        """
        done = 0
        while self._heap and self._heap[0][0] <= now_ms and done != most:
            deadline = heapq.heappop(self._heap)[2]
            action, deadline.action = deadline.action, None
            if action is not None:
                action()
                done += 1


class Alarm:
    """A recurring action at changing times: after each run it is asked for the next time."""

    __slots__ = ("_action", "_deadline", "_deadlines")

    def __init__(self, deadlines: Deadlines, action: Callable[[], None]) -> None:
        """`action` may run early: it returns the next time then, as always."""
        self._deadlines = deadlines
        self._action = action
        self._deadline: Deadline | None = None

    def move(self, at_ms: int | None) -> bool:
        """Set the next time to `at_ms` (None: never); returns whether it is set.

        If the time moves back, as by every heartbeat, it still fires at the earlier time, without effect, which is
        cheaper.
        """
        current = self._deadline if self._deadline is not None and self._deadline.action is not None else None
        if current is not None and at_ms is not None and at_ms >= current.at_ms:
            return True
        if current is not None:
            current.cancel()
        self._deadline = None if at_ms is None else self._deadlines.at(at_ms, self._action)
        return at_ms is not None
