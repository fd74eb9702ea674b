"""Decides when a failed query restarts, and when a pipeline ends. Pure: times in, effects out."""

from typing import Final, Literal, NamedTuple

__all__ = ["FIRST_PAUSE_MS", "LONGEST_PAUSE_MS", "STEADY_MS", "QuerySupervisor", "State"]

FIRST_PAUSE_MS: Final = 1_000
LONGEST_PAUSE_MS: Final = 60_000
STEADY_MS: Final = 300_000
"""A query that ran this long has recovered: its next failure counts as the first."""

State = Literal["starting", "running", "waiting", "finished", "failed", "stopped"]

_OVER: Final[tuple[State, ...]] = ("finished", "failed", "stopped")


class QueryEnd(NamedTuple):
    """The end of a query: the error's name, or nothing, one line for people, and whether a restart would fail again."""

    error: str
    message: str
    is_permanent: bool = False


class QuerySupervisor:
    """Keeps one query running, independently of the others' failures."""

    def __init__(self, name: str, most_restarts: int | None) -> None:
        """`most_restarts` in a row, unlimited if None."""
        self.name = name
        self.state: State = "starting"
        self.restarts = 0
        self.error: QueryEnd | None = None
        self._most = most_restarts
        self._in_a_row = 0
        self._since_ms = 0
        self._due_ms = 0

    @property
    def is_over(self) -> bool:
        """Whether it will not be started again."""
        return self.state in _OVER

    def due_ms(self) -> int | None:
        """When it must be started; None if it must not."""
        return self._due_ms if self.state in ("starting", "waiting") else None

    def started(self, now_ms: int) -> None:
        """The query runs."""
        self.restarts += self.state == "waiting"
        self.state, self._since_ms = "running", now_ms

    def progressed(self) -> None:
        """A micro-batch is complete, or there is nothing to do: the last failure is over."""
        if self.state == "running":
            self.error = None

    def failed(self, now_ms: int, error: QueryEnd) -> None:
        """Handle a failed run or start: wait, longer each time, or give up."""
        if self.state == "running" and now_ms - self._since_ms >= STEADY_MS:
            self._in_a_row = 0
        self.error = error
        if error.is_permanent or (self._most is not None and self._in_a_row >= self._most):
            self.state = "failed"
            return
        self.state = "waiting"
        self._due_ms = now_ms + min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << min(self._in_a_row, 16))
        self._in_a_row += 1

    def finished(self) -> None:
        """The query has processed everything."""
        self.state, self.error = "finished", None

    def stopped(self) -> None:
        """The pipeline was told to stop; permanent failures stay."""
        if not self.is_over:
            self.state = "stopped"
