"""A cluster as its faults see it."""

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from duramen.sim.cluster.checkers.invariants import Witness
from duramen.sim.cluster.network import SimulatedNetwork
from duramen.sim.cluster.node import SimulatedNode
from duramen.sim.machine.scheduler import VirtualClock
from duramen.sim.machine.trace import Trace

__all__ = ["Victim"]


class Victim(Protocol):
    """The operations that faults need."""

    seed: int
    nodes: dict[int, SimulatedNode]
    network: SimulatedNetwork
    witness: Witness
    trace: Trace
    true: VirtualClock
    counts: Counter[str]

    def spoil(self) -> bool:
        """Claim the fault that occurs once in a run, that a disk loses something; returns whether it was free."""

    def at(self, delay_us: int, act: Callable[[], None]) -> None:
        """Do it later."""

    def start(self, node: SimulatedNode) -> None:
        """The process of a node begins, if it does not run."""

    def end(self, node: SimulatedNode, *, power: bool, soon: bool = False) -> None:
        """The process of a node ends, and begins again some time later, or soon."""

    def stop(self, node: SimulatedNode) -> None:
        """The process of a node stops in good order, and begins again some time later."""

    def wipe(self, node: SimulatedNode) -> None:
        """The disk of a node is lost with all that is on it."""

    def roll_back(self, node: SimulatedNode) -> None:
        """A node ends, and its disk is restored from its image."""

    def take_out(self, node: SimulatedNode) -> None:
        """A node stops, and does not begin again before it is brought back."""

    def bring_back(self, node: SimulatedNode, *, blank: bool) -> None:
        """A node that was taken out comes again, with its disk or with an empty one."""
