"""`python -m tests.raft.reached`: how far every order of events is explored in ten minutes of a core."""

import math
import time
from typing import Final

from tests.raft.exploring import Bounds, explore

__all__ = ["SOON"]

_MOST_CPU_S: Final = 600
SOON: Final = (
    Bounds(exchanges=False, epochs=1, records=1, restarts=0),
    Bounds(exchanges=False, epochs=1, records=0, restarts=0, closings=1),
    Bounds(exchanges=True, epochs=1, records=1, restarts=1),
    Bounds(exchanges=True, epochs=1, records=2, restarts=1),
    Bounds(exchanges=True, epochs=1, records=1, restarts=2),
    Bounds(exchanges=True, epochs=2, records=0, restarts=0),
    Bounds(exchanges=True, epochs=2, records=1, restarts=0),
)
"""Those that are explored wholly within a minute."""
_FURTHER: Final = (
    Bounds(exchanges=False, epochs=1, records=2, restarts=0),
    Bounds(exchanges=False, epochs=1, records=1, restarts=1),
    Bounds(exchanges=True, epochs=2, records=2, restarts=0),
    Bounds(exchanges=True, epochs=2, records=0, restarts=1),
    Bounds(exchanges=True, epochs=2, records=1, restarts=1),
)


def main() -> None:
    for bounds in (*SOON, *_FURTHER):
        began_s = time.process_time()
        explored = explore(bounds, math.inf, _MOST_CPU_S)
        took_s = time.process_time() - began_s
        whole = "all" if explored.complete else "not all"
        print(f"{bounds}: {whole}, {explored.states:,} states, {explored.steps:,} steps, {took_s:.0f} s", flush=True)


if __name__ == "__main__":
    main()
