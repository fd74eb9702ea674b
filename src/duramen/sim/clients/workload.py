"""The workload of a simulated run, drawn from the seed; every response goes to the checker."""

import random
from collections.abc import Callable
from functools import partial
from typing import Final

from duramen.service.broker import Broker
from duramen.sim.clients.access import NodeAccess
from duramen.sim.clients.committers import Committers
from duramen.sim.clients.members import SimulatedMembers
from duramen.sim.clients.owners import Owners
from duramen.sim.clients.queues import SimulatedQueues
from duramen.sim.clients.readers import Readers
from duramen.sim.clients.shared import Clients
from duramen.sim.clients.snapshots import SnapshotReaders
from duramen.sim.clients.transactors import Transactors
from duramen.sim.clients.whole import WholeReaders
from duramen.sim.clients.writers import SimulatedProducers
from duramen.sim.machine.aims import CLOSED
from duramen.sim.machine.scheduler import SeededWorker
from duramen.sim.machine.stages import UPKEEP
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["Workload"]

_PATIENCE_US: Final = 900_000_000
_FIRST_ROUND_US: Final = 500_000  # about so long until the scrubber has been through all there is
_TRANSACTING: Final = 0.5  # of the runs with keyed streams are mostly transactions
_LEADING: Final = 0.3
_IDLE: Final = 0.04
_UPKEEP_IDLE: Final = 0.15  # the probability of time passing for background work


class Workload:
    """All clients of a run. `begin` for each process; `over` once they are done with it."""

    def __init__(self, clients: Clients, queues: random.Random | None, producing: random.Random) -> None:
        """With `queues`, from which they draw, there are clients of light queues too; see `SimulatedQueues`."""
        self._clients = clients
        self._queues = None if queues is None else SimulatedQueues(clients, queues, producing)
        self._writers = writers = SimulatedProducers(clients)
        self._readers = readers = Readers(clients)
        self._committers = committers = Committers(clients)
        self._transactors = transactors = Transactors(clients)
        self._members = members = SimulatedMembers(clients)
        owners = Owners(clients, writers)
        ops: tuple[tuple[Callable[[], None], int], ...] = (
            (writers.produce, 30), (writers.produce_idempotent, 25), (writers.repeat, 10), (readers.read, 15),
            (committers.commit, 8), (committers.look, 4), (owners.create, 6), (owners.let_go, 3), (owners.cut, 2),
            (owners.delete, 2), (owners.configure, 2), (transactors.act, 24), (members.act, 20),
        )  # fmt: skip
        whole = WholeReaders(clients)
        self._snapshots = SnapshotReaders(clients, whole) if clients.keyed else None
        if self._snapshots is not None:
            ops = (*ops, (self._snapshots.read, 80), (owners.change_keyed, 2))
            if clients.chance.random() < _TRANSACTING:
                ops = (*ops, (transactors.act, 150), (whole.look, 60))
        if self._queues is not None:
            ops = (*ops, (self._queues.act, 300))
        self._idle = 2 * _IDLE if clients.keyed else _IDLE
        self._actions = [op for op, _ in ops]
        self._weights = [weight for _, weight in ops]
        self._leading: dict[str, tuple[Callable[[], None], ...]] = {
            "sync": (writers.produce, writers.produce, owners.configure),
            "roll": (writers.produce, owners.create),
            "compaction": (writers.produce_idempotent,),
            "delete": (owners.let_go, owners.let_go, owners.delete),
            "truncate": (owners.cut,),
            "read": (readers.read,),
            "view": (writers.produce, *(() if self._snapshots is None else (self._snapshots.read,))),
        }

    def begin(
        self, broker: Broker, worker: SeededWorker, access: NodeAccess, *, quiet: bool = False, scrubbed: bool = False
    ) -> None:
        """A node has started; `quiet` where it is only looked at, `scrubbed` where the scrubber has done so before."""
        chance = self._clients.chance
        self._clients.begin(broker, worker, access)
        self._worker = worker
        lengths = (30, 60) if self._clients.faults.aimed_at else (3, 10, 30, 60)
        self._left = 0 if quiet else chance.choice(lengths)
        self._drains = quiet or chance.random() < 0.4
        self._patience_us = 0
        self._committers.look()
        self._writers.begin()
        self._transactors.begin()
        self._members.begin()
        if self._snapshots is not None:
            self._snapshots.begin(everything=quiet)
        if self._queues is not None:
            self._queues.begin(everything=quiet or chance.random() < 0.5)
        if self._clients.faults.without_indexes == CLOSED and not quiet:
            # Of an index that a reader has made again in memory, the scrubber does not look at the file.
            worker.after(_FIRST_ROUND_US, partial(self._begin_reading, scrubbed=scrubbed))
        else:
            self._begin_reading(scrubbed=scrubbed)

    def _begin_reading(self, *, scrubbed: bool) -> None:
        self._readers.begin(scrubbed=scrubbed)
        self._worker.after(1, self._act)

    @property
    def over(self) -> bool:
        """Whether clients are done with this process."""
        if self._left:
            return False
        clients = self._clients
        if self._drains and clients.in_flight:
            if not self._patience_us:
                clients.faults.calm()
                self._patience_us = clients.clock.now_us + _PATIENCE_US
            if clients.clock.now_us > self._patience_us:
                raise BrokenPromise(f"{clients.in_flight} requests are not answered")
            return False
        return True

    def _act(self) -> None:
        chance = self._clients.chance
        for _ in range(chance.choice((1, 1, 1, 3))):
            if self._left:
                self._left -= 1
                self._next()()
        if self._left:
            idle = chance.random() < (_UPKEEP_IDLE if self._clients.faults.aimed_at in UPKEEP else self._idle)
            self._worker.after(chance.randint(100_000, 3_000_000) if idle else chance.randint(50, 3000), self._act)

    def _next(self) -> Callable[[], None]:
        """A client's next action: more often one that leads to the stage in which the process is to be struck."""
        chance = self._clients.chance
        leading = self._leading.get(self._clients.faults.aimed_at)
        if leading is not None and chance.random() < _LEADING:
            return chance.choice(leading)
        return chance.choices(self._actions, self._weights)[0]
