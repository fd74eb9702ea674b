"""Profiles of simulated runs: the behaviour of disks, and the small sizes of stores and views.

A run draws one of each.
"""

import random
from typing import Final

from duramen.broker.views.parts import ViewLimits
from duramen.sim.machine.faults import Profile
from duramen.sim.machine.stages import DAMAGES, FAULTS, UPKEEP
from duramen.storage.store import StoreLimits

__all__ = ["LIMITS", "PROFILES", "view_limits"]

_FAULTS: Final = Profile(
    "faults", ("power loss", "kill"), 200,
    ("read error", "write error", "sync error", "disk full", "short write", "slow"), 0.02,
)  # fmt: skip

_AIMED: Final = Profile(
    "aimed", ("power loss", "kill"), aims=tuple(fault for fault in FAULTS if fault not in DAMAGES)
)  # fmt: skip

PROFILES: Final = (
    _AIMED,
    _AIMED,
    _AIMED,
    Profile("aimed", ("power loss", "kill"), 300, decays=0.3, aims=DAMAGES),
    Profile("kill", ("kill",)),
    Profile("power", ("power loss", "kill")),
    Profile("power", ("power loss",)),
    _FAULTS,
    _FAULTS,
    Profile(
        "upkeep", ("power loss", "kill"), 400,
        ("read error", "write error", "sync error", "disk full", "short write", "slow"), 0.15, of=UPKEEP,
    ),
    Profile(
        "rewrite", ("power loss", "kill"), 300,
        ("read error", "write error", "sync error", "disk full", "short write", "slow"), 0.2,
        of=("copy", "checkpoint", "rewrite"),
    ),
    Profile("syncs", ("power loss", "kill"), 200, ("sync error",), 0.1),
    Profile("full", ("power loss", "kill"), 200, ("disk full", "short write", "slow"), 0.03),
    Profile("slow", ("power loss", "kill"), 120, ("slow",), 0.1),
    Profile("damage", ("power loss", "kill"), flips=0.5),
    Profile("decay", ("power loss", "kill"), decays=0.7, decays_at_work=0.02),
    Profile("decay", ("power loss", "kill"), 400, decays=0.7, decays_at_work=0.02, of=UPKEEP),
    Profile(
        "worn", ("power loss", "kill"), 300, ("sync error", "disk full"), 0.15,
        of=("checkpoint", "rewrite", "truncate", "scrub", "delete"), decays=0.5, decays_at_work=0.05,
    ),
)  # fmt: skip

LIMITS: Final = (
    StoreLimits(8 << 10, 64 << 10, 16 << 10, 2 << 10, 20),
    StoreLimits(16 << 10, 128 << 10, 32 << 10, 8 << 10, 50),
    StoreLimits(8 << 10, 1 << 20, 64 << 10, 2 << 10, 20),
    StoreLimits(64 << 10, 1 << 20, 256 << 10, 32 << 10, 1000),
)


def view_limits(chance: random.Random, filed: random.Random) -> ViewLimits:
    """Pages of a few records, and checkpoints at every other turn or only when the node stops; some tables in files."""
    return ViewLimits(
        page_records=chance.choice((8, 8, 30, 1000)),
        read_bytes=chance.choice((1, 1000, 1 << 20)),
        pause_ms=chance.choice((0, 0, 10)),
        sample_ms=chance.choice((20, 100, 1000)),
        save_ms=chance.choice((50, 300, 60_000)),
        save_records=chance.choice((20, 5_000_000)),
        table_bytes=filed.choice((0, 20_000, 1 << 62, 1 << 62, 1 << 62, 1 << 62)),
        round_ms=filed.choice((10, 300)),
    )
