"""Timeouts of a replica, in ms. Pure."""

from collections.abc import Callable
from typing import Final, NamedTuple

__all__ = ["TIMEOUTS", "RaftTimeouts"]

_MOST_DOUBLINGS: Final = 10


class RaftTimeouts(NamedTuple):
    """Timeouts in ms.

    `election_ms`: time without a leader before an election, plus a random time up to the same length. A
    candidate waits as long for responses. `fetch_ms`: time without a response of the leader before a follower starts an
    election, plus up to an eighth at random. `retry_ms`: time before a message is sent again. `wait_ms`: how long the
    leader parks a fetch without new entries. `desertion_ms`: time without fetches of a majority before the leader
    resigns. `soon_ms`: about how long a follower whose connection to its leader closed waits for the others to notice
    that too.
    """

    election_ms: int = 500
    fetch_ms: int = 450
    retry_ms: int = 100
    wait_ms: int = 100
    desertion_ms: int = 1000
    soon_ms: int = 20

    def before_standing_ms(self, chance: Callable[[int], int]) -> int:
        """The time to wait for another replica to lead."""
        return self.election_ms + chance(self.election_ms)

    def silence_ms(self, chance: Callable[[int], int]) -> int:
        """The time that a leader may be silent; it is random, so that followers do not start elections together."""
        return self.fetch_ms + chance(self.fetch_ms // 8 + 1)

    def shortly_ms(self, chance: Callable[[int], int], doublings: int = 0) -> int:
        """A random time from half to one and a half of `soon_ms`, doubled `doublings` times, at most `fetch_ms`."""
        about_ms = min(self.soon_ms << min(doublings, _MOST_DOUBLINGS), self.fetch_ms)
        return about_ms // 2 + chance(about_ms + 1)


TIMEOUTS: Final = RaftTimeouts()
"""A leader that stops responding is replaced within 700 ms, and one that pauses for 300 ms is not: it sends something
every 100 ms, and no voter starts an election before 450 ms of silence. See `docs/adr/quorum.md`."""
