"""When those who catch up pause: in the same moments at all nodes whose clocks agree. Pure.

How quick acknowledgements would be without those who catch up shows only while none of them is served anywhere. So all
leaders pause at once, by the wall clock, without a word between them. What went before is still on its way to a disk
at first: only the later part of a pause tells what is usual. Where a clock is wrong, that node learns what is usual
while others serve, and is the less careful; nothing else comes of it.
"""

from typing import Final

__all__ = ["PAUSE_MS", "PERIOD_MS", "SETTLED_MS", "pause_left_ms", "settled"]

PERIOD_MS: Final = 20_000
"""Each pause begins so long after the one before."""
PAUSE_MS: Final = 2_000
SETTLED_MS: Final = 600
"""After so much of a pause nothing is felt any more of what went before it."""


def pause_left_ms(wall_ms: int) -> int:
    """How long the pause lasts that there is now, in ms; 0 where there is none."""
    return max(0, PAUSE_MS - wall_ms % PERIOD_MS)


def settled(wall_ms: int) -> bool:
    """Whether there is a pause now that has lasted long enough to tell what is usual."""
    return SETTLED_MS <= wall_ms % PERIOD_MS < PAUSE_MS
