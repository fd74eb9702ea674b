"""Aims of faults: one kind of fault in one stage, so that rare stages get theirs too.

Data, and how a seed draws from it. It names stages and faults, never a place in storage.
"""

import random
from collections.abc import Collection
from typing import Final, NamedTuple

from duramen.sim.machine.stages import FITTING, POSSIBLE, STAGES

__all__ = ["CLOSED", "OPEN", "Aim", "draw"]

OPEN: Final = "no indexes of open segments"
CLOSED: Final = "no indexes of closed segments"

_RATES: Final = (1.0, 0.4, 0.1)
_WEIGHTS: Final = {"sync": 4, "rewrite": 2, "compaction": 3, "delete": 2, "truncate": 5, "scrub": 2, "view": 6}
_RARE: Final = {
    ("torn write", "sync"): 10, ("torn write", "roll"): 4, ("short write", "roll"): 4, ("disk full", "truncate"): 8,
    ("sync error", "append"): 8, ("sync error", "copy"): 3, ("older copy", "append"): 4, ("older copy", "roll"): 2,
    ("cut", "copy"): 2, ("bit flip", "truncate"): 8, ("cut", "truncate"): 8, ("older copy", "truncate"): 8,
}  # fmt: skip
_WRITES: Final = 3  # times as often: few of the stages that are seldom write much


class Aim(NamedTuple):
    """A kind of fault and the stage in which it is to occur.

    `first` is the fault that has to occur before the stage has work: a kind of fault in the stage `first_in`, or,
    before the process begins, the loss of indexes.
    """

    fault: str
    stage: str
    rate: float  # how likely a call is struck that it fits
    first: str = ""
    first_in: str = ""


def draw(chance: random.Random, faults: Collection[str], stages: Collection[str] = STAGES) -> Aim:
    """One of the cells of the report, of these kinds of fault in these stages."""
    cells = [cell for cell in POSSIBLE if cell[0] in faults and cell[1] in stages]
    fault, stage = chance.choices(cells, [_weight(*cell) for cell in cells])[0]
    aim = Aim(fault, stage, 1.0 if fault == "older copy" else chance.choice(_RATES))  # few files have been others
    if stage == "rewrite":
        return aim._replace(first="sync error", first_in="checkpoint")
    if stage == "scrub" and fault in FITTING and fault != "read error":
        return aim._replace(first=CLOSED, rate=max(aim.rate, 0.4))  # it writes nothing else
    if fault == "sync error" and stage in ("append", "copy"):
        return aim._replace(first=OPEN, rate=0.5)  # it syncs nothing but the name of a file that was missing
    return aim


def _weight(fault: str, stage: str) -> int:
    """How often a cell is drawn: the more often the rarer it is."""
    rare = _RARE.get((fault, stage), _WEIGHTS.get(stage, 1))
    return rare * _WRITES if rare > 1 and "write" in FITTING.get(fault, ()) else rare
