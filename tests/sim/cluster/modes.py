"""Simulated clusters with one kind of client more: a run that keeps its promises, and the hunt for a planted bug."""

from collections.abc import Iterable
from typing import Any

from tests.sim.planted import Bug, broken_by, planted

from duramen.sim.cluster.world import ClusterWorld

__all__ = ["hunt", "keeps_promises"]


def keeps_promises(seed: int, **clients: Any) -> None:
    """Run a cluster with these clients, options of `ClusterWorld`; nothing is broken."""
    outcome = ClusterWorld(seed, **clients).run()
    assert not outcome.broken, outcome.trace


def hunt(bug: Bug, seeds: Iterable[int], *, stuck: bool = True, **clients: Any) -> int | None:
    """The first seed that breaks a promise with the bug; `stuck`: whether a run that stands still counts as well."""
    with planted(bug):
        for seed in seeds:
            outcome = ClusterWorld(seed, **clients).run()
            if broken_by(bug.name, outcome.broken) and (stuck or not outcome.stuck):
                return seed
    return None
