"""Waits for queues: a request is retried whenever one of its queues changes, until its timeout."""

from collections.abc import Callable, Iterable

from duramen.service.broker import Broker

__all__ = ["QueueWait"]


class QueueWait:
    """Rounds of one request: `ask` begins one, and `ended` ends it."""

    def __init__(self, broker: Broker, wait_ms: int, ask: Callable[[], None], answer: Callable[[], None]) -> None:
        """`answer` is called without anything to wait for; it may call `end`."""
        self._broker = broker
        self._wait_ms = wait_ms
        self._ask = ask
        self._answer = answer
        self._asking = False
        self._woken = False
        self._waits = False
        self._leave: list[Callable[[], None]] = []
        self._cancel: Callable[[], None] = lambda: None
        self.over = False

    def begin(self) -> None:
        """Ask for the first time."""
        if self._wait_ms:
            self._waits = True
            self._cancel = self._broker.later(self._wait_ms, self._late).cancel
        self._ask_anew()

    def end(self) -> bool:
        """Wait for nothing any more; whether that is so from now on only."""
        ends, self.over = not self.over, True
        self._cancel()
        self._forget()
        return ends

    def watch(self, leave: Iterable[Callable[[], None]]) -> None:
        """Register for events that call `wake`; each function in `leave` unregisters."""
        self._leave += leave

    def wake(self) -> None:
        """Something has happened to a queue."""
        if self._asking:
            self._woken = True
        elif not self.over:
            self._ask_anew()

    def ended(self, *, found: bool) -> None:
        """A round is over, with something to answer or without."""
        self._asking = False
        if found or not self._waits:
            self._answer()
        elif self._woken:
            self._ask_anew()

    def _ask_anew(self) -> None:
        self._forget()
        self._asking, self._woken = True, False
        self._ask()

    def _forget(self) -> None:
        leave, self._leave = self._leave, []
        for one in leave:
            one()

    def _late(self) -> None:
        self._waits = False
        if not self._asking:
            self._answer()
