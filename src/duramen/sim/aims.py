"""Where a process is struck: one kind of fault in one stage, so that the rare stages get theirs too.

Data, and how a seed draws of it. It names stages and faults, never a place in storage.
"""

import random
from collections.abc import Collection
from typing import Final, NamedTuple

from duramen.sim.stages import DAMAGES, FITTING, POSSIBLE

__all__ = ["INDEX", "NO_INDEXES", "Aim", "draw"]

INDEX: Final = "a cut index"
NO_INDEXES: Final = "no indexes"

_RATES: Final = (1.0, 0.4, 0.1)
_WEIGHTS: Final = {"sync": 2, "compaction": 3, "delete": 2, "truncate": 5, "scrub": 4}
_RARE: Final = {("older copy", "append"): 4}
_WRITES: Final = 3  # times as often: few of the stages that are seldom write much


class Aim(NamedTuple):
    """A kind of fault and the stage that it is to come in.

    `first` is what has to come before there is anything for the stage to do: a kind of fault in the stage `first_in`,
    damage to an index in any, or the loss of indexes before the process begins.
    """

    fault: str
    stage: str
    rate: float  # how likely a call is struck that it fits
    first: str = ""
    first_in: str = ""


def draw(chance: random.Random, faults: Collection[str]) -> Aim:
    """One of the cells of the report, of these kinds of fault."""
    cells = [cell for cell in POSSIBLE if cell[0] in faults]
    fault, stage = chance.choices(cells, [_weight(*cell) for cell in cells])[0]
    aim = Aim(fault, stage, 0.1 if fault in DAMAGES else chance.choice(_RATES))
    if stage == "rewrite":
        return aim._replace(first="sync error", first_in="checkpoint")
    if stage == "scrub" and fault in FITTING and fault != "read error":
        return aim._replace(first=INDEX)  # it writes nothing else
    if fault == "sync error" and stage in ("append", "copy"):
        return aim._replace(first=NO_INDEXES, rate=0.5)  # it syncs nothing but the name of a file that was missing
    return aim


def _weight(fault: str, stage: str) -> int:
    """How often a cell is drawn: the more often the rarer it is."""
    rare = _RARE.get((fault, stage), _WEIGHTS.get(stage, 1))
    return rare * _WRITES if rare > 1 and "write" in FITTING.get(fault, ()) else rare
