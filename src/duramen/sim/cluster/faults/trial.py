"""A disk of a healthy cluster fails or is full: its node reports it at once, others lead, and it returns."""

import errno
import random
from collections.abc import Callable
from typing import Final, Protocol

from duramen.base.errors import DuramenError
from duramen.broker.control import requests
from duramen.broker.control.responses import Value
from duramen.controller.membership.lifecycle import LifecyclePhase
from duramen.sim.cluster.victim import Victim
from duramen.sim.machine.trace import BrokenPromise, Stuck

__all__ = ["DiskTrial", "GoOn", "see"]

_NOTICED_US: Final = 30_000_000
_LEFT_US: Final = 2_000_000
_BACK_US: Final = 30_000_000
_GROUP: Final = "disk trial"


class GoOn(Protocol):
    """Let things happen until it is so, or break the promise that is named."""

    def __call__(self, condition: Callable[[], bool], otherwise: str, patience_us: int = ...) -> None: ...


def see(go_on: GoOn, condition: Callable[[], bool], otherwise: str, patience_us: int) -> None:
    """Run until a condition holds. If it does not in time, a promise is broken: nothing else is wrong."""
    try:
        go_on(condition, otherwise, patience_us)
    except Stuck as stuck:
        raise BrokenPromise(str(stuck)) from None


class DiskTrial:
    """One disk is struck, at the end of a run. `go_on` lets the cluster live."""

    def __init__(self, cluster: Victim, chance: random.Random, go_on: GoOn) -> None:
        self._cluster = cluster
        self._go_on = go_on
        able = [node for node in cluster.nodes.values() if cluster.witness.elects_without(node)]
        self.possible = bool(able)  # where a disk was lost before, those left may be needed for every decision
        self._node = chance.choice(able or list(cluster.nodes.values()))
        self._asks = chance.choice([node for node in cluster.nodes.values() if node is not self._node])
        self.breaks = chance.random() < 0.5
        self._asked = 0

    def run(self) -> None:
        """Cause the fault, check the reactions of others, and repair it: only a restart clears a failed sync."""
        node, disk, go_on = self._node, self._node.disk, self._go_on
        name = f"node {node.node_id}"
        self._cluster.trace("the disk of %s %s", name, "fails" if self.breaks else "is full")
        taken_bytes = 0 if self.breaks else disk.free_bytes
        disk.free_bytes -= taken_bytes
        disk.interfere = _fail_syncs if self.breaks else None
        self._ask_something()
        self._go_on(self._is_noticed, f"{name} does not notice that its disk takes no writes", _NOTICED_US)
        see(go_on, self._is_left, f"{name} leads on, or is in sync, with a disk that takes no writes", _LEFT_US)
        self._ask(requests.RebalanceLeaders(1_000))
        self._go_on(self._is_answered, "leaders are not moved", _NOTICED_US)
        see(go_on, self._is_left, f"{name} was elected with a disk that takes no writes", 0)
        if self.breaks:
            disk.interfere = None
            self._cluster.end(node, power=False, soon=True)
        else:
            disk.free_bytes += taken_bytes
            see(go_on, self._is_back, f"{name} does not come back though its disk has room again", _BACK_US)

    def _ask_something(self) -> None:
        """Every node has to write the decisions; without writes no disk fault is noticed."""
        if not self._is_noticed():
            self._ask(requests.ConfigureGroup(_GROUP, {"trial": f"{self._asked}"}))
            self._cluster.at(500_000, self._ask_something)

    def _ask(self, request: requests.Request) -> None:
        member = self._asks.member
        if member is not None:
            self._asked += 1
            member.ask(request, self._answered)

    def _answered(self, _: Value | DuramenError) -> None:
        self._asked -= 1

    def _is_answered(self) -> bool:
        return self._asked == 0

    def _is_noticed(self) -> bool:
        return self._node.member is not None and self._node.member.problem is not None

    def _is_back(self) -> bool:
        member = self._node.member
        return member is not None and member.problem is None and member.lifecycle.phase is LifecyclePhase.LIVE

    def _is_left(self) -> bool:
        struck = self._node.node_id
        return not any(
            len(partition.replicas) > 1 and (partition.leader == struck or struck in partition.isr)
            for _, partition in self._cluster.witness.council.state.partitions
        )


def _fail_syncs(call: str, path: str, size: int) -> int:
    if call == "sync":
        raise OSError(errno.EIO, f"{path}: the disk")
    return size
