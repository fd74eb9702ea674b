"""When those who catch up pause: the same moments at all nodes whose clocks agree. Pure.

What is slow changes while somebody catches up, with everything else that goes on; how quick a node would be without
those who catch up shows only while none of them is served anywhere. So all leaders pause at once, by the wall clock,
without a word between them. Where a clock is wrong the others' pauses are seen less well, and nothing else comes of it.
"""

from typing import Final

__all__ = ["PAUSE_MS", "PERIOD_MS", "pause_left_ms"]

PERIOD_MS: Final = 10_000
"""Each pause begins so long after the one before."""
PAUSE_MS: Final = 1_000


def pause_left_ms(wall_ms: int) -> int:
    """How long the pause lasts that there is now, in ms; 0 where there is none."""
    return max(0, PAUSE_MS - wall_ms % PERIOD_MS)
