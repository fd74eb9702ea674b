"""Shared state of all clients of a simulated run: the node, randomness, and outstanding requests."""

import random
from collections.abc import Callable
from typing import Any, Final

from duramen.base.errors import NodeStopping, StorageFailed, StorageFull
from duramen.broker.partition import Partition
from duramen.service.broker import Broker
from duramen.sim.checkers.checker import Checker
from duramen.sim.checkers.history import LogHistory
from duramen.sim.clients.access import NodeAccess
from duramen.sim.machine.faults import FaultPlan
from duramen.sim.machine.scheduler import SeededWorker, VirtualClock
from duramen.sim.machine.trace import BrokenPromise, Trace

__all__ = ["Clients"]

_REFUSING: Final = 0.25  # of the runs
_REFUSED: Final = 0.2  # of their batches


class Clients:
    """The clients' side of a run. `begin` for each process."""

    def __init__(
        self, chance: random.Random, refusing: random.Random, checker: Checker, faults: FaultPlan,
        clock: VirtualClock, trace: Trace, *, keyed: bool = False,
    ) -> None:  # fmt: skip
        """`refusing` says which batches are refused as a door does that: not leader, throttled, out of time.

        `keyed` where most streams are.
        """
        self.keyed = keyed
        self.chance = chance
        self._refusing = refusing
        self._refuses = refusing.random() < _REFUSING
        self.checker = checker
        self.faults = faults
        self.clock = clock
        self.trace = trace
        self.small = chance.random() < 0.8  # whether all batches are
        self.in_flight = 0  # requests to this process that are not answered
        self.stopping = False  # whether this process is about to end in good order
        self._numbers = 0

    def begin(self, broker: Broker, worker: SeededWorker, access: NodeAccess) -> None:
        """A process has started, and this is how it is talked to."""
        self.broker = broker
        self.worker = worker
        self.access = access
        self.in_flight = 0
        self.stopping = False

    def number(self) -> int:
        """One that no other batch or commit has."""
        self._numbers += 1
        return self._numbers

    def size(self) -> int:
        """Of a batch's values, in bytes."""
        if self.small or self.chance.random() < 0.7:
            return self.chance.choice((4, 40, 300, 900))
        return self.chance.randint(2000, 12_000)

    # -- queries ------------------------------------------------------------------------------------

    def partition(self, history: LogHistory) -> Partition | None:
        """The partition that the history is of, where the node still has it."""
        model = self.checker.streams.get(history.name)
        stream = self.broker.streams.find(history.name)
        if model is None or stream is None or history not in model.histories or stream.id != model.id:
            return None
        return stream.partitions[history.partition]

    def is_there(self, history: LogHistory) -> bool:
        """Whether its stream is, and is not being deleted."""
        return self.partition(history) is not None and self.checker.streams[history.name].state == "there"

    def histories(self) -> list[tuple[LogHistory, Partition]]:
        """Every partition of streams that are there."""
        found = []
        for model in self.checker.streams.values():
            if model.state == "there":
                for history in model.histories:
                    partition = self.partition(history)
                    if partition is not None:
                        found.append((history, partition))
        return found

    def any(self) -> tuple[LogHistory, Partition] | tuple[None, None]:
        """One of them."""
        found = self.histories()
        return self.chance.choice(found) if found else (None, None)

    def refuses(self) -> bool:
        """Whether the next batch of an idempotent producer is refused before its partition has seen it."""
        return self._refuses and self._refusing.random() < _REFUSED

    # -- answers ------------------------------------------------------------------------------------

    def answer(self, done: Callable[..., None]) -> Callable[..., None]:
        """One thing more to wait for; `done` once it is there."""
        self.in_flight += 1
        answered = False

        def once(*values: Any) -> None:
            nonlocal answered
            if answered:
                raise BrokenPromise(f"a request was answered twice, now with {values}")
            answered = True
            self.in_flight -= 1
            done(*values)

        return once

    def may_fail(self, what: str, error: BaseException) -> None:
        """Raise unless a fault of the disk, or the node's end, explains the error."""
        if isinstance(error, NodeStopping):
            return
        if isinstance(error, StorageFailed | StorageFull) and self.faults.failed:
            return
        raise BrokenPromise(f"{what} failed, and nothing explains it: {type(error).__name__}: {error}")
