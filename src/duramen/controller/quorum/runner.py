"""Runs a quorum replica: passes messages, time and syncs to its state machine, and executes its effects in order.

No effect after a ballot is executed before the ballot is on disk; truncations and snapshots are awaited in the same
way. A replica whose disk fails cannot keep promises: it becomes volatile until it is restarted. It follows in memory,
so that its node knows the cluster's decisions, reports nothing as synced, and neither votes nor leads.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from duramen.base.deadlines import Alarm
from duramen.base.errors import (
    BatchCorrupt,
    BatchTooLarge,
    DuramenError,
    NodeStopping,
    NotController,
    OutcomeUnknown,
    StorageFailed,
    StorageFull,
)
from duramen.controller.quorum.ballot_file import Promised
from duramen.controller.quorum.dependencies import QuorumDependencies, QuorumEffects
from duramen.controller.quorum.entries import data_of, encode_events, payload_of, read_batch, written
from duramen.controller.quorum.log import MetadataLog
from duramen.controller.quorum.proposals import ProposalDone, Proposals
from duramen.controller.quorum.reads import QuorumReads
from duramen.controller.quorum.snapshot_chunks import Download, FetchChunk, SnapshotBytes, Wire
from duramen.controller.quorum.snapshots import decode_snapshot_file, encode_snapshot_file
from duramen.metadata.events import Event
from duramen.raft.description import FetchTimes, QuorumDescription
from duramen.raft.effects import Append, Became, Commit, Cut, Effect, Install, Persist, Send, Serve, ServeSnapshot
from duramen.raft.epochs import EpochEnd
from duramen.raft.machine import RaftMachine
from duramen.raft.messages import (
    EntryBatch,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    Message,
    SnapshotAnswer,
    Vote,
    VoteAnswer,
)
from duramen.raft.roles import RaftRole
from duramen.raft.voter_changes import Change, VoterChangeRefusal
from duramen.raft.voters import Voter, Voters
from duramen.rpc.effect_runner import EffectRunner
from duramen.storage.io import is_full, is_passing

__all__ = ["Runner"]

_RETRY_MS: Final = 500
"""The delay before a ballot or snapshot is rewritten after a full disk, or a lack of open files."""


class Runner:
    """The Quorum port on a state machine and a disk. `machine` starts at the state of the log and the ballot."""

    def __init__(self, machine: RaftMachine, dependencies: QuorumDependencies, outside: QuorumEffects) -> None:
        self._machine = machine
        self._dependencies = dependencies
        self._outside = outside
        self._agenda: EffectRunner[Effect] = EffectRunner(machine.take, self._do, (Cut, Install))
        self._alarm = Alarm(dependencies.deadlines, self._fire)
        self._proposals = Proposals()
        self._fetches = FetchTimes()
        self._serving = QuorumReads(machine, dependencies, outside)
        self._download = Download()
        self._led_epoch: int | None = None  # its epoch as leader, once all earlier effects are executed
        self._saving = False
        self._problem: DuramenError | None = None  # the failure of the disk that made it volatile
        self._over: DuramenError | None = None
        self._damaged = machine.damaged
        if self._damaged:
            outside.report(
                "disk damage may have destroyed entries of the metadata log that this node acknowledged: it does not "
                "vote until it has fetched them again from the leader"
            )
        self._go_on()

    # -- state --------------------------------------------------------------------------------------

    @property
    def machine(self) -> RaftMachine:
        """The machine, for reading only."""
        return self._machine

    @property
    def log(self) -> MetadataLog:
        """The metadata log on disk, for reading."""
        return self._dependencies.log

    @property
    def applied(self) -> EpochEnd:
        """The end of the applied entries."""
        return self._dependencies.applied.end

    @property
    def voters(self) -> Voters:
        """The voters according to the committed and applied entries."""
        return self._dependencies.applied.voters

    @property
    def error(self) -> DuramenError | None:
        """The reason why it has stopped, if it has."""
        return self._over

    @property
    def problem(self) -> DuramenError | None:
        """The reason why it is volatile, if it is: only a restart ends that."""
        return self._problem

    @property
    def _in_memory(self) -> bool:
        return self._problem is not None

    def leads(self, epoch: int) -> bool:
        """Whether it leads in that epoch, and has not stopped."""
        return self._over is None and self._machine.role is RaftRole.LEADER and self._machine.epoch == epoch

    def describe(self) -> QuorumDescription:
        """The quorum as this replica knows it (KIP-836)."""
        return self._fetches.describe(self._machine, self._dependencies.clock.wall_ms())

    # -- requests -----------------------------------------------------------------------------------

    def propose(self, events: Sequence[Event], done: ProposalDone) -> None:
        """Order events, at least one; `done(position of the last)` once they are committed and applied.

        `done` gets NotController or BatchTooLarge if nothing was ordered; OutcomeUnknown if this replica loses
        leadership before the outcome is known.
        """
        if self._over is not None:
            done(self._over)
            return
        payload = encode_events(events, self._dependencies.clock.wall_ms())
        if len(payload) > self._dependencies.limits.batch_bytes:
            done(BatchTooLarge(f"{len(events)} changes at once have {len(payload)} bytes, more than the quorum takes"))
            return
        # Effects of an earlier role may still wait for the disk, and would end present proposals.
        ready = self._led_epoch == self._machine.epoch
        end = self._machine.propose(payload, len(events)) if ready else VoterChangeRefusal.NOT_LEADER
        if isinstance(end, VoterChangeRefusal):
            done(self._not_controller())
            return
        self._proposals.add(end, done)
        self._go_on()

    def change(self, change: Change) -> EpochEnd | VoterChangeRefusal:
        """Change the voters, as in the machine."""
        if self._over is not None:
            return VoterChangeRefusal.NOT_LEADER
        self._tick()
        result = self._machine.change(change)
        self._go_on()
        return result

    def join(self, voter: Voter) -> None:
        """Request to become this voter from now on; the directory's intent to vote is durable."""
        self._machine.join(voter)

    def storage_changed(self, problem: DuramenError | None) -> None:
        """The node's storage accepts writes, or has a problem.

        On a full disk the replica continues: the storage has a reserve for the metadata, and without it behaves like a
        slow disk.
        """
        if problem is not None and not isinstance(problem, StorageFull):
            self._stay_in_memory(problem)
            self._go_on()

    def resign(self) -> None:
        """Give up leadership."""
        if self._over is None:
            self._tick()
            self._machine.resign()
            self._go_on()

    def stop(self) -> None:
        """Give up leadership and stop. Writes in progress may still reach the disk."""
        self.resign()
        if self._over is None:
            self._end(NodeStopping("this node is stopping"))

    def receive(self, message: Wire) -> None:
        """Handle a message; a damaged one counts as lost."""
        if self._over is not None:
            return
        self._tick()
        if isinstance(message, SnapshotBytes):
            self._take_chunk(message)
            return
        if isinstance(message, FetchChunk):
            self._serving.wanted(message)
            message = message.asked
        sound = _sound(message)
        if sound is None:
            return
        if isinstance(message, Fetch) and self.leads(message.epoch):
            self._fetches.heard(message, self._machine.end.offset, self._dependencies.clock.wall_ms())
        try:
            self._machine.receive(sound)
        except DuramenError as error:
            self._fail(error)
        self._go_on()

    def connected(self, node_id: int) -> None:
        """A connection to this node has opened, perhaps one of several."""
        if self._over is None:
            self._tick()
            self._machine.connected(node_id)
            self._go_on()

    def disconnected(self, node_id: int) -> None:
        """The last connection to this node closed."""
        if self._over is None:
            self._tick()
            self._machine.disconnected(node_id)
            self._go_on()

    # -- the machine --------------------------------------------------------------------------------

    def _fire(self) -> None:
        self._tick()
        self._go_on()

    def _tick(self) -> None:
        self._machine.tick(self._dependencies.clock.monotonic_ms())

    def _not_controller(self) -> NotController:
        leader = self._machine.leader
        known = "no leader is known" if leader in (None, self._machine.me) else f"node {leader.node_id} does"
        return NotController(f"this node is not the leader of the controller quorum: {known}")

    def _go_on(self) -> None:
        """Execute effects until one has to wait."""
        if self._agenda.going or self._over is not None:
            return
        self._agenda.go_on()
        if self._damaged and not self._machine.damaged:
            self._damaged = False
            self._outside.report("the metadata log has all entries again: this node votes")
        self._sleep()

    def _sleep(self) -> None:
        """Sleep until the machine's deadline, unless the last effect ended the replica."""
        if self._over is None:
            self._alarm.move(self._machine.deadline_ms)

    def _resume(self, effect: Effect) -> None:
        """The effect that was waited for is complete."""
        self._agenda.resume()
        self._outside.carried_out(effect)
        self._go_on()

    def _do(self, effect: Effect) -> None:
        match effect:
            case Persist():
                self._persist(effect)
                return
            case Cut():
                self._cut(effect)
                return
            case Install():
                self._install(effect)
                return
            case Append(batch):
                self._append(batch)
                return
            case Commit(high_watermark):
                self._commit(effect, high_watermark)
                return
            case Serve(node_id, answer):
                self._serving.serve(node_id, answer)
            case ServeSnapshot(node_id, snapshot):
                self._serving.serve_snapshot(node_id, snapshot)
            case Send(node_id, message):
                if not (self._in_memory and isinstance(message, Vote | VoteAnswer)):
                    self._outside.send(node_id, self._outgoing(node_id, message))
            case Became(role, epoch, _):
                self._led_epoch = epoch if role is RaftRole.LEADER else None
                if role is not RaftRole.LEADER:
                    self._proposals.fail(
                        OutcomeUnknown("this node lost the leadership of the quorum before the change was committed")
                    )
                self._fetches.clear()
        self._outside.carried_out(effect)

    def _outgoing(self, node_id: int, message: Message) -> Wire:
        if isinstance(message, FetchSnapshot):
            return FetchChunk(message, self._download.begin(node_id, message.snapshot))
        return message

    # -- writing ------------------------------------------------------------------------------------

    def _persist(self, effect: Persist) -> None:
        if self._in_memory:
            return
        self._agenda.wait()
        promised = Promised(self._machine.me, effect.ballot, self._dependencies.founders)
        write = partial(self._dependencies.ballots.write, promised)
        self._write("the ballot of the quorum", write, partial(self._resume, effect))

    def _write(self, name: str, job: Callable[[], object], then: Callable[[], None]) -> None:
        """Write a file, again after a passing error; the replica continues in memory if that fails."""

        def done(result: object) -> None:
            if self._over is not None:
                return
            if isinstance(result, BaseException):
                if not self._in_memory and _is_passing(result):
                    self._later(write)
                    return
                self._stay_in_memory(StorageFailed(f"{name} could not be written: {result}"))
            then()

        write = partial(self._dependencies.worker.submit, "read", job, done)
        write()

    def _append(self, batch: EntryBatch) -> None:
        entry = written(batch, self._machine.me.node_id, self._machine.voters, self._dependencies.clock.wall_ms())
        end = EpochEnd(entry.epoch, entry.first + entry.entries)
        self._dependencies.log.append(entry, partial(self._appended, self._agenda.cuts_done, end))
        self._outside.carried_out(Append(entry))

    def _appended(self, cuts: int, end: EpochEnd, error: DuramenError | None) -> None:
        if self._over is not None or self._in_memory:
            return
        if error is not None:
            self._stay_in_memory(StorageFailed(f"the metadata log could not be written: {error}"))
            self._go_on()
            return
        self._agenda.take()
        # After a truncation in between, the same offsets may be written again: its end determines the synced part.
        if self._agenda.uncut and cuts == self._agenda.cuts_done:
            self._machine.synced(end)
            self._go_on()

    def _cut(self, effect: Cut) -> None:
        if effect.end_offset < self._dependencies.applied.end.offset:
            raise AssertionError(f"{effect.end_offset} is below what is applied, {self._dependencies.applied.end}")
        self._agenda.wait()
        self._dependencies.log.cut(effect.end_offset, partial(self._was_cut, effect))

    def _was_cut(self, effect: Effect, error: DuramenError | None) -> None:
        if self._over is not None:
            return
        if error is not None:
            self._stay_in_memory(StorageFailed(f"the metadata log could not be truncated: {error}"))
        self._agenda.cuts_done += 1
        self._agenda.take()
        if self._agenda.uncut and not self._in_memory:
            self._machine.synced(self._dependencies.log.end)
        self._resume(effect)

    def _install(self, effect: Install) -> None:
        self._agenda.wait()
        data = payload_of(effect.payload)

        def begun(error: DuramenError | None) -> None:
            if self._over is None:
                try:
                    self._dependencies.applied.restore(decode_snapshot_file(data))
                except BatchCorrupt as corrupt:
                    self._fail(corrupt)
            self._was_cut(effect, error)

        restart = partial(self._dependencies.log.restart, effect.snapshot, begun)
        if self._in_memory:
            restart()
        else:
            write = partial(self._dependencies.snapshots.write, effect.snapshot, data)
            self._write("a snapshot of the metadata log", write, restart)

    def _later(self, write: Callable[[], None]) -> None:
        """Write it again later, unless the replica has stopped by then."""

        def again() -> None:
            if self._over is None:
                write()

        self._dependencies.deadlines.at(self._dependencies.clock.monotonic_ms() + _RETRY_MS, again)

    def _commit(self, effect: Commit, high_watermark: int) -> None:
        applied, log = self._dependencies.applied, self._dependencies.log
        try:
            applied.apply(log.between(applied.end.offset, high_watermark))
        except BatchCorrupt as error:
            self._fail(error)
            return
        log.forget(high_watermark)
        self._outside.carried_out(effect)
        self._proposals.committed(high_watermark)
        self._save()

    def _save(self) -> None:
        """Make a snapshot, if one is due: only of entries that are synced here too."""
        dependencies = self._dependencies
        applied = dependencies.applied
        due = (
            applied.unsaved_bytes >= dependencies.limits.snapshot_bytes
            and applied.end.offset <= dependencies.log.synced_offset
        )
        if self._saving or self._in_memory or not due or self._over is not None:
            return
        self._saving = True
        applied.unsaved_bytes = 0
        snapshot = applied.snapshot()
        data = encode_snapshot_file(snapshot)
        dependencies.worker.submit(
            "read", partial(dependencies.snapshots.write, snapshot.end, data), partial(self._saved, snapshot.end)
        )

    def _saved(self, end: EpochEnd, result: object) -> None:
        self._saving = False
        if self._over is not None:
            return
        if isinstance(result, BaseException):
            self._outside.report(f"a snapshot of the metadata log could not be written: {result}")
            return
        self._machine.compacted(end.offset)
        if self._machine.start == end:
            self._dependencies.log.start_at(end.offset)
        self._go_on()

    # -- snapshots of the leader's --------------------------------------------------------------------

    def _take_chunk(self, chunk: SnapshotBytes) -> None:
        if not self._download.take(chunk):
            return
        machine = self._machine
        if len(self._download) < chunk.size_bytes:
            follows = machine.leader == chunk.sender and machine.epoch == chunk.epoch
            machine.heard(chunk.sender, chunk.epoch)
            # While the epoch is not durable nothing is sent in it; the machine requests again.
            if follows and not self._agenda.waits:
                asked = FetchSnapshot(machine.me, machine.epoch, chunk.snapshot)
                self._outside.send(chunk.sender.node_id, FetchChunk(asked, len(self._download)))
            return
        data = self._download.finish()
        try:
            snapshot = decode_snapshot_file(data)
        except BatchCorrupt as error:
            self._outside.report(f"a snapshot from node {chunk.sender.node_id} is damaged: {error}")
            return
        if snapshot.end == chunk.snapshot:
            machine.receive(SnapshotAnswer(chunk.sender, chunk.epoch, snapshot.end, snapshot.voters, data))
            self._go_on()

    # -- the end ------------------------------------------------------------------------------------

    def _stay_in_memory(self, error: DuramenError) -> None:
        """The disk keeps nothing any more: another replica leads, and the remaining effects run in memory."""
        if not self._in_memory and self._over is None:
            self._problem = error
            self._dependencies.log.stay_in_memory()
            self._machine.mute()
            self._outside.failed(error)

    def _fail(self, error: DuramenError) -> None:
        if self._over is None:
            self._end(error)
            self._outside.failed(error)

    def _end(self, error: DuramenError) -> None:
        self._over = error
        self._serving.end()
        self._agenda.end()
        self._alarm.move(None)
        self._proposals.fail(OutcomeUnknown(f"the replica ended before it was committed: {error}"))


def _is_passing(error: BaseException) -> bool:
    return isinstance(error, OSError) and (is_full(error) or is_passing(error))


def _sound(message: Message) -> Message | None:
    """The message with its batches checked; None if they are damaged, or the message is invalid."""
    if isinstance(message, SnapshotAnswer):
        return None
    if not isinstance(message, FetchAnswer) or not message.batches:
        return message
    try:
        return message._replace(batches=tuple(read_batch(data_of(batch)) for batch in message.batches))
    except BatchCorrupt:
        return None
