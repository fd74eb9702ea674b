"""The expected dead-letter queue: each entry that left its queue after too many deliveries, and no other."""

from collections.abc import Sequence

from duramen.queues.requests import KEPT_MS
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["DeadLetters"]


class DeadLetters:
    """Entries of all queues that may be dead, by the parts that no edit changes."""

    def __init__(self, deliveries: int) -> None:
        """An entry is dead after so many `deliveries`; 0: never."""
        self.deliveries = deliveries
        self._since_ms: dict[bytes, int] = {}  # when an entry may have died
        self._owed: set[bytes] = set()

    def may_die(self, entry: bytes, now_ms: int) -> None:
        """The next lease of an entry is one too many."""
        self._since_ms.setdefault(entry, now_ms)

    def may_have(self, entry: bytes) -> bool:
        """Whether an entry may be gone from its queue, or go at any time."""
        return entry in self._since_ms

    def owe(self, entry: bytes) -> None:
        """An entry is gone from its queue without an acknowledgement."""
        self._owed.add(entry)

    @property
    def owed(self) -> frozenset[bytes]:
        """Entries that are in it."""
        return frozenset(self._owed)

    def check(self, found: Sequence[bytes], owed: frozenset[bytes], now_ms: int) -> None:
        """The content of a read that began when it had what it `owed`. Raises BrokenPromise."""
        lost = owed.difference(found)
        if lost:
            raise BrokenPromise(f"{sorted(lost)} are dead, and are not in the dead-letter queue")
        for entry in found:
            if entry not in self._since_ms:
                raise BrokenPromise(f"{entry!r} is in the dead-letter queue before it was delivered {self.deliveries}x")
            if found.count(entry) > 1 and now_ms < self._since_ms[entry] + KEPT_MS:
                raise BrokenPromise(f"{entry!r} is in the dead-letter queue {found.count(entry)} times")
        self._owed.update(found)
