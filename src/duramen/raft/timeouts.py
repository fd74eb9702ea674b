"""Timeouts of a replica, in ms. Pure."""

from collections.abc import Callable
from typing import Final, NamedTuple

__all__ = ["TIMEOUTS", "RaftTimeouts"]

_MOST_DOUBLINGS: Final = 10


class RaftTimeouts(NamedTuple):
    """`election_ms`: without a leader before it stands, and again as much by chance; as a candidate for answers.

    `fetch_ms`: without an answer of the leader before a follower stands, and an eighth more by chance; `retry_ms`:
    before a message is sent again; `wait_ms`: how long the leader keeps a fetch that has nothing to get;
    `desertion_ms`: without fetches of a majority before the leader resigns; `soon_ms`: about how long a follower whose
    connection to its leader closed gives the others to notice that too.
    """

    election_ms: int = 500
    fetch_ms: int = 450
    retry_ms: int = 100
    wait_ms: int = 100
    desertion_ms: int = 1000
    soon_ms: int = 20

    def before_standing_ms(self, chance: Callable[[int], int]) -> int:
        """How long to wait for somebody else to lead."""
        return self.election_ms + chance(self.election_ms)

    def silence_ms(self, chance: Callable[[int], int]) -> int:
        """How long a leader may be silent; no two followers should be of the same mind."""
        return self.fetch_ms + chance(self.fetch_ms // 8 + 1)

    def shortly_ms(self, chance: Callable[[int], int], doublings: int = 0) -> int:
        """From half of `soon_ms` to one and a half; doubled so often, with `fetch_ms` as the most in its place."""
        about_ms = min(self.soon_ms << min(doublings, _MOST_DOUBLINGS), self.fetch_ms)
        return about_ms // 2 + chance(about_ms + 1)


TIMEOUTS: Final = RaftTimeouts()
"""A leader that stops answering is replaced within 700 ms, one that pauses for 300 ms is not: it says something every
100 ms, and nobody stands before 450 ms without a word. `docs/adr/quorum.md` says more."""
