"""A replica on the simulator's disk: a real storage, and what the witness sees of what the replica does."""

import random
from collections.abc import Callable

from tests.raft.disk import Content, digest
from tests.raft.witness import Broken, Witness

from duramen.base.errors import DuramenError
from duramen.base.ids import METADATA_STREAM_ID, Position
from duramen.base.metrics import Metrics
from duramen.controller.quorum.applier import ControllerView
from duramen.controller.quorum.recovery import Opening, QuorumIdentity
from duramen.controller.quorum.runner import Runner
from duramen.controller.quorum.snapshot_chunks import Wire
from duramen.controller.standalone.metadata import LogQuorum
from duramen.metadata.events import Event, GroupConfigured
from duramen.raft.effects import Append, Became, Commit, Cut, Effect, Install
from duramen.raft.messages import EntryBatch, Vote, VoteAnswer
from duramen.raft.roles import RaftRole
from duramen.raft.voters import ReplicaId
from duramen.sim.machine.clock import SeededRandomness
from duramen.sim.machine.disk import MemoryFileSystem
from duramen.sim.machine.scheduler import SeededWorker, VirtualClock
from duramen.storage.directory import open_directory
from duramen.storage.log.log import LogConfig, LogKey
from duramen.storage.recovery.recovery import recover
from duramen.storage.segment.handles import Handles
from duramen.storage.store import Store, StoreLimits

LIMITS = StoreLimits(
    wal_file_bytes=32 << 10, wal_max_bytes=256 << 10, pending_bytes=128 << 10, copy_bytes=4 << 10, copy_interval_ms=100
)
SEGMENT_BYTES = 4 << 10


class Process(SeededWorker):
    """The jobs of one process among several on one clock."""

    def __init__(self, clock: VirtualClock, chance: random.Random) -> None:
        super().__init__(clock, chance, lambda error: error)

    @property
    def next_us(self) -> int | None:
        """When it has something to do next; 0 for at once."""
        if self._ready:
            return 0
        due_ms = self.deadlines.next_ms()
        times = [] if due_ms is None else [due_ms * 1000]
        return min([*times, *(event[0] for event in self._events[:1])], default=None)


class WitnessedView(ControllerView):
    """The controller's state, and beside it the checksum that the witness goes by."""

    def __init__(self) -> None:
        super().__init__()
        self.digest = 0

    def apply(self, batch: EntryBatch) -> None:
        super().apply(batch)
        self.digest = digest(self.digest, batch)

    def image(self) -> bytes:
        return self.digest.to_bytes(4, "big") + super().image()

    def restore(self, image: bytes) -> None:
        self.digest = int.from_bytes(image[:4], "big")
        super().restore(image[4:])


class Node:
    """A node: its disk, and its process while it runs. `send` is the network, `ended` is told of a failure."""

    def __init__(self, node_id: int, seed: str, clock: VirtualClock, witness: Witness) -> None:
        self.node_id = node_id
        self.disk = MemoryFileSystem()
        self.clock = clock
        self.witness = witness
        self.chance = random.Random(f"{seed}/{node_id}")
        self.segment_bytes = SEGMENT_BYTES
        self.process: Process | None = None
        self.runner: Runner | None = None
        self.life = 0
        self.installs = 0
        self.reports: list[str] = []
        self.send_on: Callable[[Node, int, Wire], None] = lambda _, __, ___: None
        self.failed_with: Callable[[Node, DuramenError], None] = lambda _, error: _raise(error)
        self.happened: Callable[[Node, Effect], None] = lambda _, __: None
        self.plan = QuorumIdentity(ReplicaId(node_id, ""))
        self.randomness = SeededRandomness(self.chance.randrange(1 << 30))
        self.me = ReplicaId(node_id, str(open_directory(self.disk, self.randomness, "the disk").id))
        self.disk.locks.clear()

    # -- life ---------------------------------------------------------------------------------------

    def be_alone(self, starts: int) -> list[Event]:
        """The life before the quorum: a node that is alone writes its metadata, in an epoch for each start."""
        events: list[Event] = []
        for _ in range(starts):
            self._boot()
            process = self.process
            assert process is not None
            answers: list[Position | DuramenError] = []
            added = [GroupConfigured(f"alone{len(events) + number}", {"x": "y"}) for number in range(3)]
            quorum = LogQuorum(self.store, self.clock)
            quorum.propose(added[:1], answers.append)
            quorum.propose(added[1:], answers.append)
            while len(answers) < 2:
                process.turn()
            assert all(isinstance(answer, Position) for answer in answers)
            events += added
            self.end()
        return events

    def _boot(self) -> None:
        self.life += 1
        self.process = Process(self.clock, self.chance)
        directory = open_directory(self.disk, self.randomness, "the disk")
        handles = Handles(self.disk, 16)
        recovered = recover(self.disk, directory.id, handles, self.report)
        self.store = Store(
            self.disk, self.process, self.clock, self.process.deadlines, Metrics(), directory, recovered, handles,
            node_id=self.node_id, limits=LIMITS,
        )  # fmt: skip
        self.log = self.store.ensure(LogKey(METADATA_STREAM_ID, 0), LogConfig(segment_bytes=self.segment_bytes))

    def start(self, done: Callable[[Runner | DuramenError], None]) -> None:
        """The process starts. Raises OSError where the disk does not let it."""
        self._boot()
        process = self.process
        assert process is not None
        self.view = WitnessedView()
        self.epoch = 0
        self.content = Content()
        life = self.life

        def opened(result: Runner | DuramenError) -> None:
            if self.life == life:
                if isinstance(result, Runner):
                    self._began(result)
                done(result)

        Opening(
            self.store, self.log, self.disk, process, self.clock, process.deadlines,
            plan=self.plan, view=self.view, outside=self, chance=self.chance.randrange,
        ).run(opened)  # fmt: skip

    def _began(self, runner: Runner) -> None:
        """What is on its disk is what others have seen."""
        self.runner = runner
        machine = runner.machine
        log = runner.log
        start = machine.start
        found = tuple(batch for batch in log.between(start.offset, log.end.offset))
        self.content = Content(start, runner.voters, self.view.digest, found)
        self.committed = start.offset
        for batch in found:
            self.witness.appended(batch)
            if self.log.takeovers.epoch_at(batch.first) != batch.epoch:
                raise Broken(f"{self.me}: {batch} is not of an epoch that {self.log.takeovers.rows()} says")
        if start.offset:
            self.witness.installed(self.me, self.content)

    def end(self) -> None:
        """The process is gone."""
        self.life += 1
        self.process = self.runner = None
        self.disk.end_process()

    # -- what the replica tells ----------------------------------------------------------------------

    def send(self, node_id: int, message: Wire) -> None:
        if isinstance(message, Vote) and not message.pre:
            self.witness.voted(self.me, message.epoch, self.me)
        elif isinstance(message, VoteAnswer) and message.granted and not message.pre:
            self.witness.voted(self.me, message.epoch, message.candidate)
        self.send_on(self, node_id, message)

    def failed(self, error: DuramenError) -> None:
        self.failed_with(self, error)

    def report(self, finding: str) -> None:
        self.reports.append(finding)

    def carried_out(self, effect: Effect) -> None:
        content = self.content
        match effect:
            case Append(batch):
                self.witness.appended(batch)
                self.content = content._replace(batches=(*content.batches, batch))
            case Cut(end_offset):
                kept = tuple(batch for batch in content.batches if batch.first < end_offset)
                self.content = content._replace(batches=kept)
                if self.content.end.offset != end_offset:
                    raise AssertionError(f"{end_offset} is in the middle of a batch")
            case Install(snapshot, voters, _):
                self.installs += 1
                self.content = Content(snapshot, voters, self.view.digest)
                self.witness.installed(self.me, self.content)
            case Commit(high_watermark):
                self.witness.committed_up_to(self.me, self.epoch, content, self.committed, high_watermark)
                self.committed = high_watermark
            case Became(role, epoch, _):
                self.epoch = epoch
                if role is RaftRole.LEADER:
                    self.witness.led(self.me, epoch, content)
        self.happened(self, effect)


def _raise(error: DuramenError) -> None:
    raise error
