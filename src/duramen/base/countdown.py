"""Countdown latches: one callback after the last of several parts has ended.

The parts of a request to several partitions, nodes or shards end in any order, some of them within the call that
starts them. A caller that adds parts one by one therefore counts itself as the first part, and counts itself down
after it has started all others:

    parts = Countdown(done)
    for partition in partitions:
        parts.add()
        partition.close(parts.count_down)
    parts.count_down()
"""

from collections.abc import Callable

from duramen.base.errors import DuramenError

__all__ = ["Countdown", "ErrorCountdown"]


class _Latch:
    __slots__ = ("_open",)

    def __init__(self, parts: int) -> None:
        self._open = parts

    def add(self) -> None:
        """Count one more part. Only while a part is open."""
        self._open += 1


class Countdown(_Latch):
    """Calls `then` when the last part has ended. More calls of `count_down` have no effect."""

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[], None], parts: int = 1) -> None:
        """Count `parts` from the beginning; with 0 `then` is never called."""
        super().__init__(parts)
        self._then = then

    def count_down(self) -> None:
        """End a part."""
        self._open -= 1
        if not self._open:
            self._then()


class ErrorCountdown(_Latch):
    """A countdown that calls `then` with the first error of a part, or with None."""

    __slots__ = ("_error", "_then")

    def __init__(self, then: Callable[[DuramenError | None], None], parts: int = 1) -> None:
        """Count `parts` from the beginning; with 0 `then` is never called."""
        super().__init__(parts)
        self._then = then
        self._error: DuramenError | None = None

    def count_down(self, error: DuramenError | None = None) -> None:
        """End a part, which may have failed."""
        self._error = self._error or error
        self._open -= 1
        if not self._open:
            self._then(self._error)

    def answer(self, answer: object) -> None:
        """End a part with its answer or error."""
        self.count_down(answer if isinstance(answer, DuramenError) else None)
