"""Whether this node can write for its replicas: its storage accepts writes, and no replica failed recently.

A replica whose write failed ends, and is recreated with all others once the node accepts writes again: when there is
room, or some time after a failure that the storage no longer reports. A failed quorum replica follows in memory until
the node is restarted.
"""

from collections.abc import Callable
from typing import Final

from duramen.base.deadlines import Alarm, Deadlines
from duramen.base.errors import DuramenError
from duramen.base.ports import Clock
from duramen.storage.store import Store

__all__ = ["Writability"]

_RETRY_MS: Final = 2_000
_RETRY_MOST_MS: Final = 60_000


class Writability:
    """`changed` gets a new problem, and None once there is none."""

    def __init__(
        self, store: Store, clock: Clock, deadlines: Deadlines, quorum_problem: Callable[[], DuramenError | None],
        changed: Callable[[DuramenError | None], None],
    ) -> None:  # fmt: skip
        self._store = store
        self._clock = clock
        self._quorum_problem = quorum_problem
        self._changed = changed
        self._failure: DuramenError | None = None  # of a replica
        self._wait_ms = _RETRY_MS
        self._until_ms = 0
        self._known: DuramenError | None = None
        self._alarm = Alarm(deadlines, self._fire)
        store.condition.watch(lambda _: self.look())

    @property
    def problem(self) -> DuramenError | None:
        """The reason why replicas cannot be written."""
        return self._store.condition.problem or self._failure or self._quorum_problem()

    def replica_failed(self, error: DuramenError) -> None:
        """A replica could not be opened, written or truncated: it is retried later, with growing delays."""
        now_ms = self._clock.monotonic_ms()
        if self._failure is None:
            lately = now_ms < self._until_ms + _RETRY_MOST_MS
            self._wait_ms = min(2 * self._wait_ms, _RETRY_MOST_MS) if lately and self._until_ms else _RETRY_MS
            self._until_ms = now_ms + self._wait_ms
            self._failure = error
            self._alarm.move(self._until_ms)
        self._store.soon(self.look)

    def look(self) -> None:
        """The quorum's replica may have failed."""
        problem = self.problem
        if (problem is None) is not (self._known is None):
            self._known = problem
            self._changed(problem)

    def stop(self) -> None:
        """Stop notifications."""
        self._changed = lambda _: None
        self._alarm.move(None)

    def _fire(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._until_ms:
            self._alarm.move(self._until_ms)
        elif any(log.failed for log in self._store.each_log()):
            self._until_ms = now_ms + _RETRY_MOST_MS
            self._alarm.move(self._until_ms)
        else:
            self._failure = None
            self.look()
