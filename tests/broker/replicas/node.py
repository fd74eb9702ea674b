"""A node with one partition on the simulator's disk: a real storage, and what the witness sees of its replica."""

import random
from collections.abc import Callable, Sequence

from tests.controller.quorum.node import Process
from tests.replication.broken import Broken
from tests.replication.controller import PartitionUpdate
from tests.replication.disk import Content
from tests.replication.witness import KNOWN, Witness

from duramen.base.errors import DuramenError
from duramen.base.ids import StreamId
from duramen.base.metrics import Counter, Metrics
from duramen.base.ports import Buffer
from duramen.broker.partition import Partition
from duramen.broker.recompression import Recompressing
from duramen.broker.replicas.batches import bytes_of
from duramen.broker.replicas.bulk import BulkBytes
from duramen.broker.replicas.dependencies import ReplicaDependencies
from duramen.broker.replicas.log import ReplicaLog
from duramen.broker.replicas.recovery import takeovers_of
from duramen.broker.replicas.replica import Replica
from duramen.broker.replicas.roles import Replicas
from duramen.codec.batch import batches
from duramen.metadata import partitions as controller
from duramen.metadata.partitions import PartitionId
from duramen.replication.effects import (
    AdvanceHighWatermark,
    AppendRecords,
    Effect,
    Restart,
    Show,
    StartAt,
    TruncateRecords,
)
from duramen.replication.messages import AlterPartition, ReplicaBatch, ReplicaFetch, ReplicaFetchAnswer
from duramen.replication.partition import PartitionConfig, ReplicatedPartition
from duramen.replication.timeouts import ReplicaTimeouts
from duramen.sim.machine.clock import SeededRandomness
from duramen.sim.machine.disk import MemoryFileSystem
from duramen.sim.machine.scheduler import VirtualClock
from duramen.storage.directory import open_directory
from duramen.storage.log.log import LogConfig, LogKey
from duramen.storage.log.replication import Replicated
from duramen.storage.recovery.recovery import recover
from duramen.storage.segment.handles import Handles
from duramen.storage.store import Store, StoreLimits

PLACE = PartitionId(StreamId(int=0xA), 0)
LIMITS = StoreLimits(
    wal_file_bytes=32 << 10, wal_max_bytes=256 << 10, pending_bytes=128 << 10, copy_bytes=4 << 10, copy_interval_ms=100
)


class Rules:
    """A stream of tests."""

    def __init__(self) -> None:
        metrics = Metrics()
        self.name = "a"
        self.deleted = self.append_time = self.compacted = self.keyed = self.owned = False
        self.shards = self.log_retention_ms = 0
        self.hash_key, self.shard_limits = b"", (-1, -1)
        self.owned = False
        self.kept = ""
        self.takes_as_is = True
        self.max_message_bytes = self.decoded_limit_bytes = 1 << 20
        self.recompressing: Recompressing | None = None
        self.timestamp_before_ms = self.timestamp_after_ms = (1 << 63) - 1
        self.records_in, self.bytes_in, self.records_out, self.bytes_out = (Counter() for _ in range(4))
        self.batch_records = metrics.histogram("duramen_batch_records")
        self.batch_bytes = metrics.histogram("duramen_batch_bytes")


def controlled(state: ReplicatedPartition) -> controller.PartitionState:
    """The state of the tests' controller as the real one has it."""
    in_sync = tuple(sorted(state.in_sync))
    return controller.PartitionState(
        state.replicas, in_sync, state.leader_id, state.leader_epoch, state.partition_epoch
    )


class Node:
    """A node: its disk, and its process while it runs. `send_on` is the network, `failed_with` is told of a failure."""

    def __init__(self, node_id: int, seed: str, clock: VirtualClock, witness: Witness) -> None:
        self.node_id = node_id
        self.disk = MemoryFileSystem()
        self.directory = 0
        self.clock = clock
        self.witness = witness
        self.chance = random.Random(f"{seed}/{node_id}")
        self.config = PartitionConfig()
        self.timeouts = ReplicaTimeouts()
        self.fetch_bytes = 1 << 20
        self.segment_bytes = 4000
        self.bulk = BulkBytes(2000, 500)
        self.process: Process | None = None
        self.replicas: Replicas | None = None
        self.broker_epoch = -1
        self.life = 0
        self.ready = False  # whether it has read its log
        self.counts: dict[str, int] = {}
        self.synced = Content()
        self.send_on: Callable[[Node, int, ReplicaFetch | ReplicaFetchAnswer, bytes], None] = lambda *_: None
        self.propose_on: Callable[[Node, AlterPartition], None] = lambda *_: None
        self.failed_with: Callable[[Node, DuramenError], None] = lambda *_: None
        self.happened: Callable[[Node, Effect], None] = lambda *_: None
        self._randomness = SeededRandomness(self.chance.randrange(1 << 30))

    # -- life ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """The process starts, and reads its log. Raises OSError where the disk does not let it."""
        self.life += 1
        self.ready = False
        self.process = process = Process(self.clock, self.chance)
        directory = open_directory(self.disk, self._randomness, "the disk")
        handles = Handles(self.disk, 16)
        recovered = recover(self.disk, directory.id, handles, lambda _: None)
        self.store = Store(
            self.disk, process, self.clock, process.deadlines, Metrics(), directory, recovered, handles,
            node_id=self.node_id, limits=LIMITS,
        )  # fmt: skip
        self.log = self.store.ensure(LogKey(*PLACE), LogConfig(segment_bytes=self.segment_bytes))
        self.partition = Partition(Rules(), 0, self.log, self.store, self.clock)
        self.content = Content()
        self._hooked: Replicated | None = None
        self._led_epoch = -1
        self._shown = 0
        if self.log.damage:
            raise Broken(f"{self.node_id}: recovery found damage: {self.log.damage}")
        self._read(self.log.start_offset, [], self.life)

    def _read(self, offset: int, found: list[ReplicaBatch], life: int) -> None:
        def read(buffers: list[Buffer] | DuramenError) -> None:
            if self.life != life:
                return
            if isinstance(buffers, DuramenError):
                self.failed_with(self, buffers)
                return
            data = b"".join(bytes(buffer) for buffer in buffers)
            for position, head in batches(data):
                whole = data[position : position + head.size]
                found.append(ReplicaBatch(head.leader_epoch, head.base_offset, head.last_offset_delta + 1, whole))
            if found and data:
                self._read(found[-1].first_offset + found[-1].records, found, life)
            else:
                self._began(found)

        ReplicaLog(self.store, self.log).read(offset, 1 << 20, read)

    def _began(self, found: list[ReplicaBatch]) -> None:
        """What was synced is there, but for what was not committed and may have been cut in the end."""
        log = self.log
        self.content = Content(log.start_offset, tuple(found), takeovers_of(log))
        for batch in found:
            if batch.epoch >= 0:
                self.witness.appended(batch)
                if log.takeovers.epoch_at(batch.first_offset) != batch.epoch:
                    raise Broken(f"{self.node_id}: {batch} is not of an epoch in {log.takeovers.rows()}")
        if found and found[-1].epoch < 0:
            self.content = Content(log.end_offset)
        for committed in self.witness.committed:
            if committed.batch in self.synced.batches and not self.content.has(committed.batch):
                raise Broken(f"{self.node_id} had {committed.batch} synced, and lacks it after a start")
        self.ready = True

    def registered(self, told: PartitionUpdate) -> None:
        """The controller knows this start of the node."""
        process = self.process
        assert process is not None
        self.broker_epoch = told.broker_epoch
        dependencies = ReplicaDependencies(
            self.node_id,
            told.broker_epoch,
            self.store,
            self.clock,
            process.deadlines,
            self,
            self.timeouts,
            self.fetch_bytes,
            bulk=self.bulk,
        )
        self._shown = self.content.start
        self.replicas = Replicas(dependencies, lambda _: self.partition, lambda _: self.config)

    def told(self, told: PartitionUpdate) -> None:
        """The controller says something."""
        if self.replicas is not None:
            self.replicas.on_live_nodes(told.live)
            self.replicas.on_partition_state(PLACE, controlled(told.state))
            self._look()

    @property
    def replica(self) -> Replica | None:
        return None if self.replicas is None else self.replicas.get(PLACE)

    @property
    def on_disk(self) -> Content:
        """What a loss of power leaves for certain."""
        if self.process is None or not self.ready:
            return self.synced
        start, synced_offset = self.content.start, self.log.synced_offset
        kept = [batch for batch in self.content.batches if batch.first_offset + batch.records <= synced_offset]
        if self.replica is not None:
            # A cut that is under way, or a log that begins anew, may have taken the rest.
            history = self.replica.machine.history
            start, end_offset = max(start, history.start_offset), history.end_offset
            kept = [
                batch
                for batch in kept
                if start <= batch.first_offset < end_offset and history.epoch_at(batch.first_offset) == batch.epoch
            ]
        return Content(start, tuple(kept), self.content.takeovers)

    def end(self) -> None:
        """The process is gone."""
        if self.process is not None and self.ready:
            self.synced = self.on_disk
        self.life += 1
        self.process = self.replicas = None
        self.disk.end_process()

    # -- what the replica tells ----------------------------------------------------------------------

    def send(
        self, place: PartitionId, node_id: int, message: ReplicaFetch | ReplicaFetchAnswer, records: Sequence[Buffer]
    ) -> None:
        assert place == PLACE
        self.send_on(self, node_id, message, b"".join(bytes(buffer) for buffer in records))

    def propose(self, place: PartitionId, proposal: AlterPartition) -> None:
        assert place == PLACE
        self.propose_on(self, proposal)

    def move_leader(self, place: PartitionId, leader_epoch: int, node_id: int | None) -> None:
        raise AssertionError(f"{place} is not to move to {node_id} in epoch {leader_epoch}")

    def leads(self, place: PartitionId, leader_epoch: int | None) -> None:
        assert place == PLACE
        assert leader_epoch is None or leader_epoch >= 0

    def failed(self, place: PartitionId, error: DuramenError) -> None:
        assert place == PLACE
        self.failed_with(self, error)

    def report(self, finding: str) -> None:
        self._count("reports")
        self.finding = finding

    def carried_out(self, place: PartitionId, effect: Effect) -> None:
        assert place == PLACE
        content = self.content
        match effect:
            case AppendRecords(batch, leader_id):
                batch = batch._replace(payload=bytes(bytes_of(batch)))
                self.witness.appended(batch)
                self.content = content.append(batch, leader_id)
            case TruncateRecords(end_offset):
                self._count("cuts")
                replica = self.replica
                assert replica is not None
                self.witness.cut(self.node_id, replica.machine.state.leader_epoch, content, end_offset)
                self.content = content.cut(end_offset)
                if self.log.end_offset != end_offset:
                    raise Broken(f"{self.node_id} was cut at {end_offset} and ends at {self.log.end_offset}")
            case Restart(start_offset):
                self._count("restarts")
                self.content = Content(start_offset)
                if self.log.start_offset != start_offset or self.log.end_offset != start_offset:
                    raise Broken(f"{self.node_id} begins anew at {start_offset}, not at {self.log.start_offset}")
            case StartAt(start_offset):
                self.content = content.start_at(start_offset)
            case AdvanceHighWatermark(offset) | Show(offset):
                replica = self.replica
                assert replica is not None
                self.show(replica.machine.state.leader_epoch, offset)
        self.happened(self, effect)

    def show(self, epoch: int, offset: int) -> None:
        if offset > self._shown:
            self.witness.shown(self.node_id, epoch, self.content, self._shown, offset)
            self._shown = offset

    def _look(self) -> None:
        """See whether it has begun to lead, and what it tells clients then."""
        replica = self.replica
        if replica is None or not replica.leads:
            return
        epoch = replica.machine.state.leader_epoch
        if epoch != self._led_epoch:
            self._led_epoch = epoch
            self.witness.led(self.node_id, epoch, self.content)
            replicated = self.log.replicated
            assert replicated is not None
            if self._hooked is not replicated:
                self._hooked, first = replicated, replicated.on_append

                def appended(epoch: int, first_offset: int, end_offset: int) -> None:
                    if epoch == replicated.leader_epoch:
                        self._look()
                        self._ordered(epoch, first_offset, end_offset)
                    first(epoch, first_offset, end_offset)

                replicated.on_append = appended

    def _ordered(self, epoch: int, first_offset: int, end_offset: int) -> None:
        batch = ReplicaBatch(epoch, first_offset, end_offset - first_offset, bytes(self.log.active.pending[-1]))
        self.witness.appended(batch)
        self.content = self.content.append(batch, self.node_id)

    def look(self) -> None:
        """After each event: what readers and clients are shown."""
        self._look()
        replica = self.replica
        if replica is None or not replica.leads:
            return
        latest_offset = replica.machine.latest_offset
        if latest_offset is not None:
            self.witness.shown_end(replica.machine.state.leader_epoch, latest_offset)
        if self.log.high_watermark > self._shown:
            raise Broken(f"{self.node_id} shows readers what is below {self.log.high_watermark}, not {self._shown}")

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


__all__ = ["KNOWN", "PLACE", "Node"]
