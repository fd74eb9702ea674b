"""The writes in flight to the rows of logs, and the readers that must see several logs as of one moment."""

from collections import Counter
from collections.abc import Callable, Collection

__all__ = ["WriteGate"]


class WriteGate:
    """Starts writes. Those to logs for which a reader waits start after it."""

    def __init__(self) -> None:
        self._in_flight = Counter[int]()  # writes by log
        self._readers = list[tuple[frozenset[int], Callable[[], None]]]()
        self._deferred = list[tuple[int, Callable[[], None]]]()  # writes that wait for readers

    def is_quiet(self, logs: Collection[int]) -> bool:
        """Whether no write to the rows of these logs is in flight."""
        return not any(self._in_flight[log] for log in logs)

    def when_quiet(self, logs: Collection[int], act: Callable[[], None]) -> None:
        """Call `act` once no write to the rows of these logs is in flight; later writes to them wait for it."""
        self._readers.append((frozenset(logs), act))
        self._run_readers()

    def start(self, log_id: int, write: Callable[[], None]) -> None:
        """Start a write: now, or after the readers of the log. At its end `ended` is called."""
        if any(log_id in logs for logs, _ in self._readers):
            self._deferred.append((log_id, write))
        else:
            self._begin(log_id, write)

    def _begin(self, log_id: int, write: Callable[[], None]) -> None:
        self._in_flight[log_id] += 1
        write()

    def ended(self, log_id: int, done: Callable[[], None]) -> None:
        """A write has ended: call `done`, then the readers that waited for it."""
        self._in_flight[log_id] -= 1
        done()
        self._run_readers()

    def _run_readers(self) -> None:
        ready = [one for one in self._readers if self.is_quiet(one[0])]
        if not ready:
            return
        self._readers = [one for one in self._readers if one not in ready]
        for _, act in ready:
            act()
        if not self._readers:
            deferred, self._deferred = self._deferred, []
            for log_id, write in deferred:
                self._begin(log_id, write)
