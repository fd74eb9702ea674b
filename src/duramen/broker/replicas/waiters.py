"""Those who wait for a replica: producers with acks=all, and requests that wait for a record."""

from collections.abc import Callable
from functools import partial
from typing import Final

from duramen.base.errors import (
    DuramenError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    StorageFailed,
)
from duramen.base.ids import Position
from duramen.broker.partition import Partition
from duramen.replication.machine import ReplicaMachine
from duramen.replication.messages import ReplicaRefusal
from duramen.replication.replication_wait import ReplicationWaitOutcome
from duramen.storage.log.replication import Replicated
from duramen.storage.store import AppendDone

__all__ = ["ReplicaWaiters"]

Released = Callable[[ReplicaRefusal | None], None]
Settled = Callable[[ReplicationWaitOutcome], None]

_REFUSED: Final = {
    ReplicaRefusal.NOT_ENOUGH_REPLICAS: NotEnoughReplicas,
    ReplicaRefusal.NOT_ENOUGH_REPLICAS_AFTER_APPEND: NotEnoughReplicasAfterAppend,
}


class ReplicaWaiters:
    """The waiters of one replica. `failed` is called with the error of a batch that could not be stored."""

    def __init__(
        self, partition: Partition, machine: ReplicaMachine, state: Replicated, failed: Callable[[StorageFailed], None]
    ) -> None:
        self._partition = partition
        self._machine = machine
        self._state = state
        self._failed = failed
        self._acks: dict[Released, None] = {}  # producers with acks=all, which get an error if the replica ends
        self._waits: dict[Settled, None] = {}  # requests that wait for a record
        self._over = False

    @property
    def named(self) -> str:
        """The partition, as errors name it."""
        return f"partition {self._partition.index} of {self._partition.stream.name}"

    def accept(self, done: AppendDone, *, all_replicas: bool) -> AppendDone:
        """See `Replica.accept`. Raises NotEnoughReplicas."""
        refusal = self._machine.refusal() if all_replicas else None
        if refusal is not None:
            raise self.refused(refusal)
        return partial(self._stored, self._machine.state.leader_epoch, done, all_replicas)

    def _stored(
        self, epoch: int, done: AppendDone, all_replicas: bool, base_offset: int, error: DuramenError | None
    ) -> None:
        """Handle a batch that is on this disk, possibly since an earlier request."""
        if isinstance(error, StorageFailed):
            self._failed(error)  # its records may be read until another node leads
        if error is not None or not all_replicas:
            done(base_offset, error)
            return
        machine = self._machine
        if self._over or not machine.leads or machine.state.leader_epoch != epoch:
            done(-1, self.refused(ReplicaRefusal.NOT_LEADER))  # whatever ended the leadership: the batch may be kept
        elif base_offset < machine.high_watermark:
            done(base_offset, None)
        elif machine.refusal() is not None:
            done(base_offset, self.refused(ReplicaRefusal.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        else:
            released = partial(self._released, epoch, base_offset, done)
            self._acks[released] = None
            machine.wait(base_offset, released)

    def _released(self, epoch: int, base_offset: int, done: AppendDone, refusal: ReplicaRefusal | None) -> None:
        if refusal is None:
            done(base_offset, None)
        else:
            done(base_offset if self._state.leader_epoch == epoch else -1, self.refused(refusal))

    def refused(self, refusal: ReplicaRefusal) -> DuramenError:
        """A refusal of the machine as an error."""
        state, name = self._machine.state, self.named
        if refusal is ReplicaRefusal.NOT_LEADER:
            known = "nobody does" if state.leader_id is None else f"node {state.leader_id} does"
            return NotLeader(f"this node does not lead {name}: {known} in epoch {state.leader_epoch}")
        in_sync = ", ".join(map(str, sorted(state.in_sync)))
        return _REFUSED[refusal](f"{refusal.value} (in sync with {name}: {in_sync})")

    def wait_replicated(self, record: Position, done: Settled, deadline_ms: int) -> None:
        """See `Replica.wait_replicated`."""
        settled = partial(done)  # each wait is one of its own
        self._waits[settled] = None
        self._machine.wait_replicated(record, settled, deadline_ms)

    def release(self, waiter: object, refusal: ReplicaRefusal | None) -> None:
        """The batch of a producer is on the disks of all in-sync replicas, or is refused."""
        if isinstance(waiter, partial) and waiter in self._acks:
            del self._acks[waiter]
            waiter(refusal)

    def settle(self, waiter: object, outcome: ReplicationWaitOutcome) -> None:
        """The wait for a record is over."""
        if isinstance(waiter, partial) and waiter in self._waits:
            del self._waits[waiter]
            waiter(outcome)

    def close(self) -> None:
        """The replica ends: batches that are stored from now on are in doubt."""
        self._over = True

    def end(self) -> None:
        """Nobody waits any more: each gets an error."""
        acks, self._acks = self._acks, {}
        for released in acks:
            released(ReplicaRefusal.NOT_LEADER)
        waits, self._waits = self._waits, {}
        for settled in waits:
            settled(ReplicationWaitOutcome.TIMED_OUT)
