"""Waiting Produce requests with acks=all, in the order of their appends. Pure."""

from bisect import bisect_right
from operator import itemgetter
from typing import Final

__all__ = ["Waiters"]

_offset: Final = itemgetter(0)


class Waiters:
    """Requests that wait until the high watermark reaches their offset."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, object]] = []  # few; an empty deque takes 760 bytes of each partition

    def add(self, end_offset: int, waiter: object) -> None:
        """Add a waiter for all records below `end_offset`; it waits at least as long as the last waiter."""
        last = self._waiting[-1][0] if self._waiting else end_offset
        self._waiting.append((max(end_offset, last), waiter))

    def reached(self, high_watermark: int) -> list[object]:
        """Remove and return the waiters whose offset is reached."""
        count = bisect_right(self._waiting, high_watermark, key=_offset)
        found = [waiter for _, waiter in self._waiting[:count]]
        del self._waiting[:count]
        return found

    def take(self) -> list[object]:
        """Remove and return all waiters."""
        found = [waiter for _, waiter in self._waiting]
        self._waiting.clear()
        return found
