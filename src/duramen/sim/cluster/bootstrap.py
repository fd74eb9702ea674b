"""Formation of a simulated cluster: its seeds start at once, or one by one during faults."""

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from duramen.sim.cluster.node import SimulatedNode
from duramen.sim.cluster.victim import Victim

__all__ = ["Beginning"]

_LATE_US: Final = (1, 1, 400_000, 4_000_000)
_TROUBLED_US: Final = 6_000_000
_HEALED_US: Final = 8_000_000
_MOST_FAULTS: Final = 6


class Beginning:
    """Starts the seeds, ends and cuts off some of them, and lets them be after some seconds."""

    def __init__(self, cluster: Victim, founders: Iterable[SimulatedNode], chance: random.Random) -> None:
        self._cluster = cluster
        self._founders = list(founders)
        self._chance = chance

    def begin(self) -> None:
        """From here on they come."""
        cluster, chance = self._cluster, self._chance
        for node in self._founders:
            self._at(chance.choice(_LATE_US) + chance.randrange(300_000), partial(cluster.start, node))
        for _ in range(chance.randrange(_MOST_FAULTS + 1)):
            self._at(chance.randrange(_TROUBLED_US), self._trouble)
        self._at(_HEALED_US, self._heal)

    def _at(self, delay_us: int, act: Callable[[], None]) -> None:
        self._cluster.at(delay_us, act)

    def _trouble(self) -> None:
        """One of them has to begin anew, or is not heard for a while."""
        node, chance = self._chance.choice(self._founders), self._chance
        others = [other for other in self._founders if other is not node]
        if node.process is None:
            return
        self._cluster.counts["faults while it forms"] += 1
        kind = chance.choice(("end", "end", "crash", "cut", "sever", "pause"))
        if kind == "end":
            self._cluster.end(node, power=chance.random() < 0.5)
        elif kind == "crash":
            node.disk.crash_at = node.disk.calls + chance.randrange(1, 20)
        elif kind == "cut":
            ways = {(node.node_id, other.node_id) for other in others}
            back = {(to, here) for here, to in ways} if chance.random() < 0.5 else set()
            self._cluster.network.change_cut(frozenset(ways | back))
        elif kind == "sever":
            self._cluster.network.sever(node.node_id, chance.choice(others).node_id)
        else:
            node.pause(chance.choice((300_000, 4_000_000)))
            self._cluster.network.paused(node.node_id)

    def _heal(self) -> None:
        self._cluster.network.change_cut(frozenset())
        for node in self._founders:
            node.disk.crash_at = None
