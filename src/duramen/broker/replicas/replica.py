"""The replica of a partition: passes messages, time and syncs to its state machine, and executes its effects.

Writes of batches are not awaited; truncations and restarts of the log are. A replica whose disk fails stops until it is
recreated with the node's next registration, because it could not keep what it reports.
"""

from collections.abc import Callable, Collection
from functools import partial

from duramen.base.deadlines import Alarm
from duramen.base.errors import (
    BatchCorrupt,
    DuramenError,
    LogDamaged,
    NodeStopping,
    NotLeader,
    StorageFailed,
)
from duramen.base.ids import Position
from duramen.base.ports import Buffer
from duramen.broker.partition import Partition
from duramen.broker.replicas.batches import follow_up
from duramen.broker.replicas.dependencies import ReplicaDependencies
from duramen.broker.replicas.log import ReplicaLog
from duramen.broker.replicas.reads import ReplicaReads
from duramen.broker.replicas.snapshots import ReplicaSnapshots
from duramen.broker.replicas.throttle.latency import AckLatencyTimer
from duramen.broker.replicas.waiters import ReplicaWaiters
from duramen.metadata.partitions import PartitionId
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
from duramen.replication.machine import Behind, ReplicaMachine
from duramen.replication.messages import Message, ReplicaFetch, ReplicaFetchAnswer, ReplicaRefusal
from duramen.replication.partition import PartitionConfig, ReplicatedPartition
from duramen.replication.replica import ReplicaDiskState
from duramen.replication.replication_wait import ReplicationWaitOutcome
from duramen.rpc.effect_runner import EffectRunner
from duramen.storage.log.replication import Replicated
from duramen.storage.store import AppendDone

__all__ = ["Replica"]


class Replica:
    """The replica of `partition` at `place`. It starts with the state that `opening` found: `kept`."""

    def __init__(
        self,
        dependencies: ReplicaDependencies,
        place: PartitionId,
        partition: Partition,
        kept: ReplicaDiskState,
        config: PartitionConfig,
    ) -> None:
        self._dependencies = dependencies
        self._place = place
        self._partition = partition
        self._machine = ReplicaMachine(
            dependencies.node_id,
            dependencies.broker_epoch,
            kept,
            config=config,
            now_ms=dependencies.clock.monotonic_ms(),
            timeouts=dependencies.timeouts,
        )
        log = partition.log
        self._state = Replicated(self._machine.shown_offset, log.end_offset, self._appended)
        log.replicated = self._state
        self._log = ReplicaLog(dependencies.store, log, dependencies.bulk)
        self._snapshots = ReplicaSnapshots(partition)
        self._serving = ReplicaReads(dependencies, place, self._machine, log, self._log, self._snapshots)
        self._effects: EffectRunner[Effect] = EffectRunner(self._machine.take, self._do, (TruncateRecords, Restart))
        self._alarm = Alarm(dependencies.deadlines, self._fire)
        self._waiters = ReplicaWaiters(
            partition, self._machine, self._state, partial(dependencies.outside.failed, place)
        )
        self._written_soon = False
        self._timing = AckLatencyTimer(log, dependencies.clock, dependencies.pace)
        self._over: DuramenError | None = None
        partition.waiting[self._synced] = None
        partition.role = self
        self._watch_state()

    # -- state --------------------------------------------------------------------------------------

    @property
    def partition(self) -> Partition:
        """The partition."""
        return self._partition

    @property
    def machine(self) -> ReplicaMachine:
        """The state machine, for queries only."""
        return self._machine

    @property
    def leads(self) -> bool:
        """Whether producers may append here: it leads, and its log has all that comes before."""
        return self._state.leader_epoch is not None

    @property
    def in_sync(self) -> Collection[int]:
        """See `ReplicaMachine.may_lead`."""
        return self._machine.may_lead

    @property
    def deposed(self) -> bool:
        """See `ReplicaMachine.deposed`."""
        return self._machine.deposed

    def behind(self) -> list[Behind]:
        """The followers that lack something now, as far as this node leads."""
        if self._over is None:
            self._machine.advance(self._dependencies.clock.monotonic_ms())
        return self._machine.behind()

    @property
    def error(self) -> DuramenError | None:
        """Why it does nothing any more, if it does not."""
        return self._over

    @property
    def epoch(self) -> int:
        """The newest leader epoch from the controller; -1 before the first."""
        return self._machine.state.leader_epoch

    @property
    def latest_offset(self) -> int | None:
        """See `ReplicaMachine.latest_offset`."""
        return self._machine.latest_offset

    def check_leads(self) -> None:
        """Raise NotLeader, also where another may lead since long, or why this replica does nothing any more."""
        self.check_holds()
        if not self.leads:
            raise self._waiters.refused(ReplicaRefusal.NOT_LEADER)

    def check_holds(self) -> None:
        """Raise the reason why reads are refused: NotLeader if the leader is isolated, or the replica's error."""
        if self._over is not None:
            raise self._over
        if self._machine.deposed:
            epoch = self._machine.state.leader_epoch
            raise NotLeader(
                f"this node leads {self._waiters.named} in epoch {epoch} as far as it knows, and"
                " reaches neither the controller nor every in-sync replica: another node may lead it by now"
            )

    # -- producers ----------------------------------------------------------------------------------

    def accept(self, done: AppendDone, *, all_replicas: bool) -> AppendDone:
        """Append a batch in the epoch in which this node leads.

        `done` gets the base offset once it is on this disk, with `all_replicas` (acks=all) once it is on the disks of
        all in-sync replicas; or NotLeader, NotEnoughReplicasAfterAppend, with the base offset if this node still leads.
        Raises NotLeader, NotEnoughReplicas.
        """
        self.check_leads()
        return self._waiters.accept(done, all_replicas=all_replicas)

    def wait_replicated(
        self, record: Position, done: Callable[[ReplicationWaitOutcome], None], deadline_ms: int
    ) -> None:
        """`done` is called when this replica has the record of that epoch at that offset, or has truncated it.

        If the replica ends before, the result is TIMED_OUT. Raises the error of a stopped replica.
        """
        self.check_holds()
        self._tick()
        self._waiters.wait_replicated(record, done, deadline_ms)
        self._go_on()

    # -- events -------------------------------------------------------------------------------------

    def on_partition_state(self, state: ReplicatedPartition, live: Collection[int]) -> None:
        """A partition state from the controller's log, and the live nodes; see `ReplicaMachine.on_partition_state`."""
        if self._over is None:
            self._timing.forget()
        self._on_event(partial(self._machine.on_partition_state, state, live), reacts=self._machine.reacts_to(state))

    def on_live_nodes(self, live: Collection[int]) -> None:
        """These nodes are live."""
        self._on_event(partial(self._machine.on_live_nodes, live), reacts=self._machine.reacts_to_live_nodes(live))

    def configure(self, config: PartitionConfig) -> None:
        """The stream's configs have changed."""
        if self._over is None:
            self._tick()
            self._machine.configure(config)
            self._go_on()

    def reachable(self, node_id: int) -> None:
        """There is a new connection to a node."""
        self._on_event(partial(self._machine.reachable, node_id), reacts=self._machine.follows(node_id))

    def unreachable(self, node_id: int, since_ms: int) -> None:
        """There is no connection to a node since then."""
        self._on_event(partial(self._machine.unreachable, node_id, since_ms), reacts=self._machine.awaits_others)

    def on_controller_session(self, *, alive: bool) -> None:
        """See `ReplicaMachine.on_controller_session`."""
        self._on_event(partial(self._machine.on_controller_session, alive=alive), reacts=self._machine.awaits_others)

    def moved(self, leader_epoch: int) -> None:
        """See `ReplicaMachine.moved`."""
        self._on_event(partial(self._machine.moved, leader_epoch), reacts=True)

    def _on_event(self, apply: Callable[[], None], *, reacts: bool) -> None:
        """Handle an event of many replicas at once. Most only note it, which must be cheap; only some react to it."""
        if self._over is not None:
            return
        if reacts:
            self._tick()
        apply()
        if reacts:
            self._go_on()

    def receive(self, message: Message, records: Buffer = b"") -> None:
        """Handle a message, with the batches of a Fetch response; a damaged message counts as lost."""
        if self._over is not None:
            return
        self._tick()
        if isinstance(message, ReplicaFetchAnswer):
            self._log.forget_producers(message.forgotten_id)
            self._receive_snapshots(message, len(records))
        if isinstance(message, ReplicaFetchAnswer) and len(records):
            try:
                message = message._replace(batches=follow_up(message.asked.end, message.takeovers, records))
            except BatchCorrupt as error:
                self._dependencies.outside.report(f"node {message.node_id} sent a damaged batch: {error}")
                self.lost(message.asked)
                return
            self._log.came(message.batches, len(records), message.high_watermark)
        try:
            self._machine.receive(message)
        except LogDamaged as error:
            self._fail(error)
        self._go_on()

    def _receive_snapshots(self, answer: ReplicaFetchAnswer, size: int) -> None:
        current = answer.leader_epoch == self._machine.state.leader_epoch and not self._machine.leads
        if current and self._snapshots.hear(answer, size):
            self._snapshots.report(self._machine)
            self._machine.answer_all()

    def _snapshots_moved(self) -> None:
        if self._over is None:
            self._tick()
            self._machine.answer_all()
            self._go_on()

    def lost(self, message: ReplicaFetch | ReplicaFetchAnswer) -> None:
        """See `ReplicaMachine.lost`."""
        if self._over is None:
            self._tick()
            self._machine.lost(message)
            self._go_on()

    def stop(self) -> None:
        """Stop; waiting requests get an error. Writes under way may still reach the disk."""
        if self._over is None:
            self._end(NodeStopping("this node is stopping, or no longer has this partition"))

    # -- the machine --------------------------------------------------------------------------------

    def _fire(self) -> None:
        if self._over is None:
            self._tick()
            self._go_on()

    def _watch_state(self) -> None:
        state = self._partition.state
        if state is not None and state.moved != self._state_moved:
            state.moved = self._state_moved
            state.lowest_checkpoint = lambda: self._machine.lowest_checkpoint
            self._log.floor = lambda: state.floor_offset
            state.replicated()

    def _state_moved(self) -> None:
        if self._over is None:
            self._tick()
            self._log.let_go()
            self._go_on()

    def _tick(self) -> None:
        state = self._partition.state
        if state is not None:
            self._watch_state()
            self._machine.state_moved(state.applied_offset, state.floor_offset)
        self._snapshots.report(self._machine, self._snapshots_moved)
        machine, start_offset = self._machine, self._partition.log.start_offset
        machine.tick(self._dependencies.clock.monotonic_ms())
        if machine.history.start_offset < start_offset <= machine.high_watermark:
            machine.trimmed(start_offset)

    def _go_on(self) -> None:
        """Execute effects until one waits; then producers may append, if this replica leads."""
        if self._effects.going or self._over is not None:
            return
        self._lead()
        self._effects.go_on()
        self._lead()
        self._sleep()

    def _sleep(self) -> None:
        """Until the machine has effects; the last one may have ended it."""
        if self._over is None:
            self._alarm.move(self._machine.deadline_ms)

    def _lead(self) -> None:
        """Whether batches are ordered here, and in which epoch: not before all that comes before is written or cut."""
        machine = self._machine
        epoch = machine.led_epoch
        if epoch == self._state.leader_epoch:
            return
        if self._state.leader_epoch is not None:
            self._state.leader_epoch = None
            self._dependencies.outside.leads(self._place, None)
        if epoch is None or not self._effects.idle or self._over is not None or not self._has_all:
            return
        if machine.history.end.leader_epoch >= epoch:
            held = machine.history.end.leader_epoch
            self._fail(
                LogDamaged(f"{self._name} has epoch {held}, and is to lead in epoch {epoch}: the log is of another")
            )
            return
        self._log.lead()
        self._snapshots.lead()
        self._state.leader_epoch, self._state.leads_since_ms = epoch, self._dependencies.clock.monotonic_ms()
        self._dependencies.outside.leads(self._place, epoch)

    @property
    def _has_all(self) -> bool:
        """Whether the log has all that the machine has: batches of earlier leaders may wait for room in the log."""
        return self._partition.log.end_offset >= self._machine.history.end_offset

    @property
    def _name(self) -> str:
        return self._partition.log.directory

    def _resume(self, effect: Effect) -> None:
        """The operation that the effect runner waited for is complete."""
        self._effects.resume()
        self._dependencies.outside.carried_out(self._place, effect)
        self._go_on()

    def _do(self, effect: Effect) -> None:
        outside = self._dependencies.outside
        match effect:  # the most frequent first
            case SendReplicaMessage(node_id, message):
                if isinstance(message, ReplicaFetchAnswer):
                    forgotten_id = self._partition.log.producers.forgotten_id
                    message = message._replace(forgotten_id=forgotten_id, snapshots=self._snapshots.bound)
                outside.send(self._place, node_id, message, ())
            case ServeReplicaFetch():
                self._serving.serve(effect)
            case AdvanceHighWatermark() | Show():
                self._show()
            case AppendRecords():
                self._log.append(effect.batch, effect.leader_id, self._written)
            case Release(waiter, refusal):
                self._waiters.release(waiter, refusal)
            case TruncateRecords() | Restart():
                self._effects.wait()
                self._serving.when_idle(partial(self._cut, effect))
                return
            case StartAt(start_offset):
                self._log.start_at(start_offset)
            case ProposeInSyncSet(proposal):
                outside.propose(self._place, proposal)
            case TransferLeadership(leader_epoch, node_id):
                outside.move_leader(self._place, leader_epoch, node_id)
            case Settle(waiter, outcome):
                self._waiters.settle(waiter, outcome)
        outside.carried_out(self._place, effect)

    def _show(self) -> None:
        """Records below this offset may be read here."""
        shown_offset = self._machine.shown_offset
        if shown_offset > self._state.high_watermark:
            self._state.high_watermark = shown_offset
            self._timing.reached(shown_offset)
            self._partition.log.notify()

    # -- the disk -----------------------------------------------------------------------------------

    def _appended(self, epoch: int, first_offset: int, end_offset: int) -> None:
        """A batch is in the log: one that was ordered here the machine does not know yet."""
        machine = self._machine
        if epoch == self._state.leader_epoch:
            if machine.history.end_offset != first_offset:
                raise AssertionError(f"{self._name}: a batch at {first_offset} behind {machine.history.end}")
            machine.advance(self._dependencies.clock.monotonic_ms())  # an idle partition has not ticked for long
            machine.appended(end_offset - first_offset)
        self._timing.appended(end_offset, leads=self.leads, in_sync=self._dependencies.node_id in machine.state.in_sync)
        if not self._written_soon:
            # Once for all that comes in a turn.
            self._written_soon = True
            self._dependencies.store.soon(self._written_some)

    def _written_some(self) -> None:
        self._written_soon = False
        if self._over is None:
            self._serving.written()
            self._go_on()

    def _written(self, error: DuramenError | None) -> None:
        if error is not None and self._over is None:
            self._fail(StorageFailed(f"{self._name} could not be written: {error}"))

    def _synced(self, _: Partition) -> None:
        """More of the log may be on disk. During a truncation, the synced part may include records to be truncated."""
        if self._over is not None:
            return
        self._effects.take()
        self._log.let_go()
        machine, synced_offset = self._machine, self._partition.log.synced_offset
        if self._effects.uncut:
            machine.advance(self._dependencies.clock.monotonic_ms())
            machine.synced(Position(machine.history.epoch_at(synced_offset - 1), synced_offset))
        self._go_on()

    def _cut(self, effect: TruncateRecords | Restart) -> None:
        if self._over is not None:
            return
        done = partial(self._was_cut, effect)
        if isinstance(effect, TruncateRecords):
            self._log.cut(effect.end_offset, done)
        else:
            self._log.restart(effect.start_offset, self._state.high_watermark, done)

    def _was_cut(self, effect: TruncateRecords | Restart, error: DuramenError | None) -> None:
        if self._over is not None:
            return
        if error is not None:
            self._fail(error if isinstance(error, LogDamaged) else StorageFailed(f"{self._name} was not cut: {error}"))
            return
        self._effects.cuts_done += 1
        self._snapshots.cut()
        self._resume(effect)
        if self._partition.state is not None:
            self._partition.log.notify()  # state beside the log may lack records that the log no longer has
        self._synced(self._partition)

    # -- the end ------------------------------------------------------------------------------------

    def _fail(self, error: DuramenError) -> None:
        if self._over is None:
            self._end(error)
            self._dependencies.outside.failed(self._place, error)

    def _end(self, error: DuramenError) -> None:
        self._over = error
        self._waiters.close()
        if self._state.leader_epoch is not None:
            self._state.leader_epoch = None
            self._dependencies.outside.leads(self._place, None)
        self._partition.waiting.pop(self._synced, None)
        self._serving.end()
        self._log.end()
        self._effects.end()
        self._alarm.move(None)
        self._waiters.end()
