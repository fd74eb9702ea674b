"""Publishes metadata changes to replicas: some partitions in each turn, new leaders first.

The loss of a node changes tens of thousands of partitions at once. Publishing all of them in one turn would block a
node for seconds, and other nodes would consider it failed. A waiting partition is published once, with its state at
that time.

A starting node has more than one turn's work, and is ready for clients before that: it delays the rest.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from duramen.metadata.partitions import PartitionId

__all__ = ["MetadataPublisher"]

_AT_ONCE: Final = 200
"""Partitions in one turn; some milliseconds."""


class MetadataPublisher:
    """Partitions whose changes are to be published. `tell` publishes one."""

    def __init__(self, soon: Callable[[Callable[[], None]], None], tell: Callable[[PartitionId], None]) -> None:
        """`soon` calls back in a later turn."""
        self._soon = soon
        self._tell = tell
        self._led: OrderedDict[PartitionId, None] = OrderedDict()  # those with a new leader
        self._rest: OrderedDict[PartitionId, None] = OrderedDict()
        self._left = _AT_ONCE  # the number left in this turn
        self._comes_back = False
        self._holds = False

    def hold(self) -> None:
        """Partitions that wait after this turn keep waiting until `release`: the node has other work first."""
        self._holds = True

    def release(self) -> None:
        """Waiting partitions are published from the next turn on."""
        self._holds = False
        if self._led or self._rest:
            self._register_again()

    def begin(self, place: PartitionId, *, led: bool = False) -> None:
        """A partition has changed: publish it, now if possible. `led`: its leader epoch has changed."""
        if not self._led and not self._rest and self._left:
            self._spend(place)
        elif led:
            self._rest.pop(place, None)
            self._led[place] = None
        elif place not in self._led:
            self._rest[place] = None
        self._register_again()

    def _register_again(self) -> None:
        if not self._comes_back:
            self._comes_back = True
            self._soon(self._go_on)

    def _spend(self, place: PartitionId) -> None:
        self._left -= 1
        self._tell(place)

    def _go_on(self) -> None:
        """The next turn."""
        self._left = _AT_ONCE
        if self._holds:
            self._comes_back = False
            return
        for waiting in (self._led, self._rest):
            while waiting and self._left:
                self._spend(waiting.popitem(last=False)[0])
        self._comes_back = bool(self._led or self._rest)
        if self._comes_back:
            self._soon(self._go_on)
