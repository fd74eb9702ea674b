"""Time for connections between nodes: passed in, so that a test can advance it by hand."""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

__all__ = ["TIMING", "Backoff", "Later", "LinkTiming", "Timer"]


class Timer(Protocol):
    """Something that is to be done later."""

    def cancel(self) -> None:
        """Do it not."""


Later = Callable[[int, Callable[[], None]], Timer]
"""Has something done after so many milliseconds."""


class LinkTiming(NamedTuple):
    """The time limits."""

    connect_ms: int = 3_000
    handshake_ms: int = 5_000
    """The time within which a peer must prove the secret."""
    alive_ms: int = 100
    """The period of a connection's check; if nothing was sent meanwhile, a heartbeat is sent."""
    silent_turns: int = 7
    """After so many of these without data the connection is closed: longer than a busy machine delays a peer."""
    blocked_turns: int = 30
    """The number of such periods after which a peer that reads nothing of its pending bytes is disconnected."""
    closing_ms: int = 1_500
    """The time that a peer has to read the remaining bytes when a connection ends."""
    first_retry_ms: int = 50
    longest_retry_ms: int = 2_000


TIMING: Final = LinkTiming()


class Backoff:
    """The wait before the next attempt: it doubles each time, and half of it is random."""

    __slots__ = ("_chance", "_first_ms", "_longest_ms", "_now_ms")

    def __init__(self, timing: LinkTiming, chance: Callable[[int], int]) -> None:
        """`chance` gives a number from 0 to the given one, itself not included."""
        self._first_ms = timing.first_retry_ms
        self._longest_ms = timing.longest_retry_ms
        self._now_ms = self._first_ms
        self._chance = chance

    def next_ms(self) -> int:
        """The next wait."""
        wait_ms = self._now_ms // 2 + self._chance(self._now_ms // 2 + 1)
        self._now_ms = min(2 * self._now_ms, self._longest_ms)
        return wait_ms

    def reset(self) -> None:
        """An attempt was a success: begin with short waits again."""
        self._now_ms = self._first_ms
