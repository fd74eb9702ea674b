"""A replica in a test: the machine, its disk, and what carries out the effects."""

from collections.abc import Callable
from typing import NamedTuple

from tests.replication.controller import Heartbeat, PartitionUpdate, Register
from tests.replication.disk import Content, Disk
from tests.replication.witness import KNOWN, Witness

from duramen.replication.effects import (
    AdvanceHighWatermark,
    AppendRecords,
    Effect,
    ProposeInSyncSet,
    Release,
    Restart,
    SendReplicaMessage,
    ServeReplicaFetch,
    Settle,
    Show,
    StartAt,
    TransferLeadership,
    TruncateRecords,
)
from duramen.replication.machine import ReplicaMachine
from duramen.replication.messages import AlterPartition, Message, ReplicaBatch, ReplicaRefusal
from duramen.replication.partition import PartitionConfig
from duramen.replication.timeouts import ReplicaTimeouts

CONTROLLER = 0
"""Where the controller is, among the nodes."""

Post = Message | AlterPartition | TransferLeadership | Register | Heartbeat | PartitionUpdate


class Sent(NamedTuple):
    """A message on its way."""

    sender: int
    to: int
    message: Post


class Site:
    """A node with one disk. `machine` is None while it is down, or not registered."""

    def __init__(self, node_id: int, config: PartitionConfig, timeouts: ReplicaTimeouts, witness: Witness) -> None:
        self.node_id = node_id
        self.config = config
        self.timeouts = timeouts
        self.witness = witness
        self.disk = Disk()
        self.machine: ReplicaMachine | None = None
        self.broker_epoch = -1
        self.most_batches = 4
        self.say: Callable[[Effect], None] | None = None
        self.refused: dict[ReplicaRefusal, int] = {}
        self.cuts = self.restarts = 0
        self._shown = 0
        self._led_epoch = -1

    def registered(self, told: PartitionUpdate, now_ms: int) -> None:
        """The controller knows this start of the node: what it says from now on counts."""
        kept = self.disk.kept()
        self._shown = kept.start_offset
        self.broker_epoch = told.broker_epoch
        self.machine = ReplicaMachine(
            self.node_id, told.broker_epoch, kept, config=self.config, now_ms=now_ms, timeouts=self.timeouts
        )
        self._show(KNOWN, self.machine.high_watermark)

    def told(self, told: PartitionUpdate) -> None:
        """The controller says something."""
        if self.machine is not None:
            self.machine.on_partition_state(told.state, told.live)

    def look(self) -> None:
        """See whether it has begun to lead."""
        machine = self.machine
        if machine is not None and machine.leads and machine.state.leader_epoch != self._led_epoch:
            self._led_epoch = machine.state.leader_epoch
            self.witness.led(self.node_id, self._led_epoch, self.disk.written)

    def produce(self, payload: object, records: int, *, acknowledged: bool) -> ReplicaRefusal | None:
        """Order a batch, where it leads; who sent it waits until it is `acknowledged`, or does not."""
        machine = self.machine
        assert machine is not None
        refusal = machine.refusal()
        if refusal is not None and (acknowledged or refusal is ReplicaRefusal.NOT_LEADER):
            return refusal
        batch = ReplicaBatch(machine.state.leader_epoch, machine.history.end_offset, records, payload)
        self.witness.appended(batch)
        self.disk.written = self.disk.written.append(batch, self.node_id)
        machine.appended(records, batch if acknowledged else None)
        return None

    def trim(self, offset: int) -> None:
        """Retention lets go of what is below."""
        assert self.machine is not None
        self.disk.written = self.disk.written.start_at(offset)
        self.machine.trimmed(offset)

    def crash(self) -> None:
        """The process ends."""
        self.machine = None
        self._led_epoch = -1

    def begin_sync(self) -> Content:
        """What a sync that begins now will have on disk."""
        return self.disk.written

    def end_sync(self, content: Content) -> None:
        """The sync is done."""
        self.disk.synced = content
        if self.machine is not None:
            self.machine.synced(content.end)
            self.disk.high_watermark = self.machine.durable_high_watermark

    def run(self) -> list[Sent]:
        """Carry out what is to be done; what is to be sent."""
        sent: list[Sent] = []
        machine = self.machine
        if machine is None:
            return sent
        self.look()
        for effect in machine.take():
            message = self._do(machine, effect)
            if message is not None:
                sent.append(message)
            if self.say is not None:
                shown = isinstance(effect, ServeReplicaFetch) and message is not None
                self.say(SendReplicaMessage(message.to, message.message) if shown else effect)  # type: ignore[union-attr,arg-type]
        latest_offset = machine.latest_offset
        if latest_offset is not None:
            self.witness.shown_end(machine.state.leader_epoch, latest_offset)
        return sent

    def _do(self, machine: ReplicaMachine, effect: Effect) -> Sent | None:
        disk = self.disk
        match effect:
            case SendReplicaMessage(node_id, message):
                return Sent(self.node_id, node_id, message)
            case ServeReplicaFetch(node_id, answer):
                batches = disk.written.from_offset(answer.asked.end.offset, self.most_batches)
                return Sent(self.node_id, node_id, answer._replace(batches=batches))
            case ProposeInSyncSet(AlterPartition() as asked) | (TransferLeadership() as asked):
                return Sent(self.node_id, CONTROLLER, asked)
            case AppendRecords(batch, leader_id):
                self.witness.appended(batch)
                disk.written = disk.written.append(batch, leader_id)
            case TruncateRecords(end_offset):
                self.cuts += 1
                self.witness.cut(self.node_id, machine.state.leader_epoch, disk.written, end_offset)
                disk.written = disk.written.cut(end_offset)
            case Restart(start_offset):
                self.restarts += 1
                disk.written = Content(start_offset)
            case StartAt(start_offset):
                disk.written = disk.written.start_at(start_offset)
            case AdvanceHighWatermark(offset) | Show(offset):
                self._show(machine.state.leader_epoch, offset)
            case Settle() | Release():
                self._answer(effect)
        return None

    def _answer(self, effect: Settle | Release) -> None:
        batch = effect.waiter
        if not isinstance(batch, ReplicaBatch):
            return
        if isinstance(effect, Settle):
            self.witness.asked_for(self.node_id, batch, self.disk.synced, effect.outcome)
        elif effect.refusal is None:
            self.witness.released(batch)
        else:
            self.refused[effect.refusal] = self.refused.get(effect.refusal, 0) + 1

    def _show(self, epoch: int, offset: int) -> None:
        if offset > self._shown:
            self.witness.shown(self.node_id, epoch, self.disk.written, self._shown, offset)
            self._shown = offset
